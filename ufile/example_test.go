// SPDX-License-Identifier: MIT

package ufile_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/ringside-io/ringside/ufile"
)

// A File is used as an os.File. Where io_uring cannot be used the program is
// the same, and Backend says why.
func Example() {
	dir, err := os.MkdirTemp("", "ringside")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f, err := ufile.Create(filepath.Join(dir, "numbers"))
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for i := range 10 {
		if _, err := fmt.Fprintf(f, "%04d\n", i); err != nil {
			log.Fatal(err)
		}
	}
	lines := make([][5]byte, 10)
	var wg sync.WaitGroup
	for i := range lines {
		wg.Go(func() {
			if _, err := f.ReadAt(lines[i][:], int64(i)*5); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	fmt.Printf("%s%s", lines[3], lines[7])
	// Output:
	// 0003
	// 0007
}

// ModeRing insists on io_uring: the error says what to change.
func ExampleNewSystem() {
	s, err := ufile.NewSystem(ufile.Options{Mode: ufile.ModeRing})
	if err != nil {
		log.Print(err)
		if s, err = ufile.NewSystem(ufile.Options{}); err != nil {
			log.Fatal(err)
		}
	}
	f, err := s.Open(os.DevNull)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f.Name() == os.DevNull)
	// Output: true
}

// Files opened with O_DIRECT want aligned buffers.
func ExampleAlignedBuffer() {
	p := ufile.AlignedBuffer(2 * ufile.DirectAlign)
	fmt.Println(len(p), cap(p))
	// Output: 8192 8192
}
