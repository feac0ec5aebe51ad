// SPDX-License-Identifier: MIT

package ufile_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

// An end of the context is in the error; the buffer is the caller's in any case.
func ExampleFile_ReadAtContext() {
	f, err := ufile.Open(os.DevNull)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := f.ReadAtContext(ctx, make([]byte, 10), 0)
	fmt.Println(n, err)
	// Output: 0 EOF
}
