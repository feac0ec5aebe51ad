// SPDX-License-Identifier: MIT

package ufiletest

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// script performs calls on the files of one implementation and records their results.
type script struct {
	t     *testing.T
	dir   string
	open  opener
	label string // begins the lines, so that a difference is easy to find
	lines []string
	files []File
}

// compare performs a script on the reference and on the implementation.
func (s suite) compare(t *testing.T, play func(c *script)) {
	t.Helper()
	want := perform(t, OS, play)
	got := perform(t, s.open, play)
	compareLines(t, got, want, "os.File")
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}

func perform(t *testing.T, open opener, play func(c *script)) []string {
	t.Helper()
	c := &script{t: t, dir: filepath.Join(t.TempDir(), "files"), open: open}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	defer c.end()
	play(c)
	return c.lines
}

// end closes the files. Most scripts leave theirs open, and not every system can remove a
// directory with open files.
func (c *script) end() {
	for _, f := range c.files {
		_ = f.Close() // may have been closed by the script
	}
}

// note writes a line.
func (c *script) note(format string, args ...any) {
	c.lines = append(c.lines, c.label+strings.ReplaceAll(fmt.Sprintf(format, args...), c.dir, "DIR"))
}

// try records the result of a call, or that it panicked.
func (c *script) try(call string, answer func() string) {
	defer func() {
		if r := recover(); r != nil {
			c.note("%s panics", call)
		}
	}()
	c.note("%s = %s", call, answer())
}

func (c *script) path(name string) string { return filepath.Join(c.dir, name) }

// create makes a file by other means.
func (c *script) create(name string, content []byte) string {
	c.t.Helper()
	path := c.path(name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// openFile opens a file that must open.
func (c *script) openFile(path string, flag int) File {
	c.t.Helper()
	f, err := c.open(path, flag, 0o600)
	if err != nil {
		c.t.Fatalf("open %s with flags %#x: %v", path, flag, err)
	}
	c.files = append(c.files, f)
	return f
}

// content writes down what a file holds, read by other means.
func (c *script) content(path string) {
	c.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	c.note("content %s", digest(b))
}

func (c *script) readAt(f File, n int, off int64) {
	c.try(fmt.Sprintf("ReadAt(%d bytes, %d)", n, off), func() string {
		p := canary(n)
		got, err := f.ReadAt(p, off)
		return fmt.Sprintf("%d, %s, %s", got, describe(err), digest(p))
	})
}

func (c *script) writeAt(f File, p []byte, off int64) {
	c.try(fmt.Sprintf("WriteAt(%d bytes, %d)", len(p), off), func() string {
		n, err := f.WriteAt(p, off)
		return fmt.Sprintf("%d, %s", n, describe(err))
	})
}

func (c *script) read(f File, n int) {
	c.try(fmt.Sprintf("Read(%d bytes)", n), func() string {
		p := canary(n)
		got, err := f.Read(p)
		return fmt.Sprintf("%d, %s, %s", got, describe(err), digest(p))
	})
}

func (c *script) write(f File, p []byte) {
	c.try(fmt.Sprintf("Write(%d bytes)", len(p)), func() string {
		n, err := f.Write(p)
		return fmt.Sprintf("%d, %s", n, describe(err))
	})
}

func (c *script) seek(f File, off int64, whence int) {
	c.try(fmt.Sprintf("Seek(%d, %d)", off, whence), func() string {
		n, err := f.Seek(off, whence)
		return fmt.Sprintf("%d, %s", n, describe(err))
	})
}

func (c *script) stat(f File) {
	c.try("Stat", func() string {
		st, err := f.Stat()
		if err != nil {
			return describe(err)
		}
		size := st.Size()
		if st.IsDir() {
			size = 0 // depends on the file system
		}
		return fmt.Sprintf("%s %v %d bytes", st.Name(), st.Mode(), size)
	})
}

// canary returns a buffer in which every byte that a read changes can be seen.
func canary(n int) []byte { return bytes.Repeat([]byte("#"), n) }

// digest describes data: short ones in full.
func digest(p []byte) string {
	if len(p) <= 24 {
		return fmt.Sprintf("%q", p)
	}
	return fmt.Sprintf("%d bytes with sum %08x", len(p), crc32.ChecksumIEEE(p))
}

// noise is the data from which patterns are made. Its length is a prime, so that data
// from a wrong page can be recognised.
var noise = sync.OnceValue(func() []byte {
	rng := rand.New(rand.NewPCG(6, 18))
	p := make([]byte, 65521)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
})

// pattern returns the first n bytes of a file. Its data shows the offset and, by seed,
// the file.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	fill(p, 0, seed)
	return p
}

// fill writes what a file has at off into p.
func fill(p []byte, off int64, seed byte) {
	noise := noise()
	at := int((off + int64(seed)*251) % int64(len(noise)))
	for len(p) > 0 {
		p = p[copy(p, noise[at:]):]
		at = 0
	}
}

// names returns the names of directory entries and what they are.
func names(entries []fs.DirEntry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, " %s(%v)", e.Name(), e.Type())
	}
	return fmt.Sprintf("%d entries%s", len(entries), b.String())
}
