// SPDX-License-Identifier: MIT

package ufile_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ringside-io/ringside/ufile"
)

// One goroutine reads three places of a file together.
func ExampleBatch() {
	name := filepath.Join(os.TempDir(), fmt.Sprintf("ringside-batch-%d", os.Getpid()))
	if err := os.WriteFile(name, []byte("one two three"), 0o600); err != nil {
		log.Fatal(err)
	}
	defer os.Remove(name)
	f, err := ufile.Open(name)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	b, err := ufile.NewBatch(ufile.BatchOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	ranges := []ufile.Range{
		{File: f, Off: 8, Buf: make([]byte, 5)},
		{File: f, Off: 0, Buf: make([]byte, 3)},
		{File: f, Off: 4, Buf: make([]byte, 3)},
	}
	if err := b.Read(ranges); err != nil { // each range has its own error, too
		log.Fatal(err)
	}
	for _, r := range ranges {
		fmt.Printf("%s\n", r.Buf[:r.N])
	}
	// Output:
	// three
	// one
	// two
}

// Copy continues where both files are, and lets the kernel move the bytes.
func ExampleCopy() {
	dir, err := os.MkdirTemp("", "ringside")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "from"), []byte("what is to be copied"), 0o600); err != nil {
		log.Fatal(err)
	}
	from, err := ufile.Open(filepath.Join(dir, "from"))
	if err != nil {
		log.Fatal(err)
	}
	defer from.Close()
	to, err := ufile.Create(filepath.Join(dir, "to"))
	if err != nil {
		log.Fatal(err)
	}
	defer to.Close()
	n, err := ufile.Copy(context.Background(), to, from, ufile.CopyOptions{})
	fmt.Println(n, err)
	// Output: 20 <nil>
}
