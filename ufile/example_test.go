// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

// A File is used as an os.File is. Where io_uring cannot be used the program works the
// same, and Backend returns the reason.
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

// ModeRing requires io_uring: the error names the remedy.
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

// Files opened with O_DIRECT need aligned buffers.
func ExampleAlignedBuffer() {
	p := ufile.AlignedBuffer(2 * ufile.DirectAlign)
	fmt.Println(len(p), cap(p))
	// Output: 8192 8192
}

// A pool serves reads with O_DIRECT, which need aligned memory.
func ExampleBuffers() {
	pool, err := ufile.NewBuffers(64, 8192)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	p := pool.Get()
	defer pool.Put(p)
	// n, err := f.ReadAt(p, 8192)
	fmt.Println(len(p))
	// Output: 8192
}

// One goroutine reads three ranges of a file at once.
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
	if err := b.Read(ranges); err != nil { // each range also has its own error
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

// Copy continues at the positions of both files, and lets the kernel move the bytes.
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

// If the context ends, the error is its cause. The buffer belongs to the caller after the
// return.
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

// A Root opens only names below one directory.
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

// Files that a Root's file system opens can be read at any offset.
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

// The next blocks are read while the lines of this one are counted.
func ExampleReader() {
	path := filepath.Join(os.TempDir(), fmt.Sprint("ufile-reader-", os.Getpid()))
	if err := os.WriteFile(path, []byte(strings.Repeat("a line\n", 100_000)), 0o600); err != nil {
		log.Fatal(err)
	}
	defer os.Remove(path)
	f, err := ufile.Open(path) // it helps most with syscall.O_DIRECT
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	r := ufile.NewReader(f, ufile.ReaderOptions{})
	defer r.Close()
	lines := 0
	for s := bufio.NewScanner(r); s.Scan(); {
		lines++
	}
	fmt.Println(lines)
	// Output: 100000
}

// Copy a part of one file into the middle of another.
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
