// SPDX-License-Identifier: MIT

package ufile_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringside-io/ringside/ufile"
)

// A part of one file goes into the middle of another.
func ExampleCopyRange() {
	dir, err := os.MkdirTemp("", "ufile")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	src, err := ufile.Create(filepath.Join(dir, "src"))
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	if _, err := src.WriteString(strings.Repeat("0123456789", 1000)); err != nil {
		log.Fatal(err)
	}
	dst, err := os.Create(filepath.Join(dir, "dst")) // either side may be an os.File
	if err != nil {
		log.Fatal(err)
	}
	defer dst.Close()
	n, err := ufile.CopyRange(context.Background(), dst, 100, src, 5, 20, ufile.CopyOptions{
		Progress: func(copied int64) { fmt.Println("copied", copied) },
	})
	fmt.Println(n, err)
	p := make([]byte, 20)
	if _, err := dst.ReadAt(p, 100); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", p)
	// Output:
	// copied 20
	// 20 <nil>
	// 56789012345678901234
}
