// SPDX-License-Identifier: MIT

package ufile_test

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

// Mask says which fields were answered: not every kernel and file system knows
// when a file was created.
func ExampleFile_Statx() {
	f, err := ufile.Open(os.DevNull)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	st, err := f.Statx(ufile.StatxAll)
	if err != nil {
		log.Fatal(err)
	}
	if st.Mask&ufile.StatxBtime != 0 && st.Btime.After(time.Now()) {
		fmt.Println("created in the future")
	}
	fmt.Println(st.Size, st.Mask&ufile.StatxSize != 0)
	// Output: 0 true
}
