// SPDX-License-Identifier: MIT

package ufile_test

import (
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"

	"github.com/ringside-io/ringside/ufile"
)

// A Root opens what is below one directory, and nothing else.
func ExampleRoot() {
	dir, err := os.MkdirTemp("", "ringside")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r, err := ufile.OpenRoot(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	if err := r.WriteFile("greeting", []byte("hello"), 0o600); err != nil {
		log.Fatal(err)
	}
	f, err := r.Open("greeting")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, 4)
	n, err := f.ReadAt(p, 1)
	fmt.Println(string(p[:n]), err)
	_, err = r.Open("../../etc/passwd")
	fmt.Println(err)
	// Output:
	// ello <nil>
	// openat ../../etc/passwd: path escapes from parent
}

// What a Root's file system opens can be read at any place.
func ExampleRoot_FS() {
	dir, err := os.MkdirTemp("", "ringside")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r, err := ufile.OpenRoot(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	for _, name := range []string{"b", "a"} {
		if err := r.WriteFile(name, []byte("this is "+name), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	fsys := r.FS()
	err = fs.WalkDir(fsys, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := fsys.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		text, err := io.ReadAll(io.NewSectionReader(f.(io.ReaderAt), 5, 100))
		fmt.Printf("%s: %s\n", path, text)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// a: is a
	// b: is b
}
