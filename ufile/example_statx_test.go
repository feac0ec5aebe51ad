// SPDX-License-Identifier: MIT

package ufile_test

import (
	"fmt"
	"io/fs"
	"log"
	"os"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

// Mask says which fields were answered: not every kernel and file system knows
// when a file was created.
func ExampleStatx() {
	st, err := ufile.Statx(os.DevNull, ufile.StatxAll, 0)
	if err != nil {
		log.Fatal(err)
	}
	if st.Mask&ufile.StatxBtime != 0 && st.Btime.After(time.Now()) {
		fmt.Println("created in the future")
	}
	fmt.Println(st.Mode.Type() == fs.ModeDevice|fs.ModeCharDevice, st.Mask&ufile.StatxSize != 0)
	// Output: true true
}
