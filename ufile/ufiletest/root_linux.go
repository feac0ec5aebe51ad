// SPDX-License-Identifier: MIT

package ufiletest

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// rootFlags are the flags with which rootOpen opens files, in addition to none.
func rootFlags() []int {
	return slices.Concat(commonFlags, []int{syscall.O_DIRECTORY, syscall.O_NOFOLLOW, syscall.O_NOFOLLOW | os.O_RDWR,
		syscall.O_NOFOLLOW | os.O_WRONLY | os.O_CREATE, syscall.O_NONBLOCK | os.O_RDWR, syscall.O_SYNC | os.O_RDWR})
}

// special adds a named pipe.
func (c *rootScript) special(dir string) {
	c.t.Helper()
	c.must(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
}

// specialFiles opens the named pipe, which must have deadlines and a descriptor
// that blocks, as any that os opens.
func (c *rootScript) specialFiles(r Root) {
	f, err := r.OpenFile("pipe", os.O_RDWR, 0)
	c.must(err)
	c.files = append(c.files, f)
	err = f.SetReadDeadline(time.Now())
	c.note("SetReadDeadline = %s", describe(err))
	if err != nil {
		return // a read would not end
	}
	c.read(f, 1)
	c.note("SetReadDeadline = %s", describe(f.SetReadDeadline(time.Time{})))
	c.write(f, []byte("through it"))
	c.read(f, 20)
	c.readAt(f, 1, 0)
	c.stat(f)
}
