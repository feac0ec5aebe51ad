// SPDX-License-Identifier: MIT

//go:build !linux

package ufile

import (
	"context"
	"io/fs"
	"os"
	"runtime"
)

// osRoot is os.Root.
type osRoot struct{ *os.Root }

func openTree(name string) (tree, error) {
	r, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return osRoot{r}, nil
}

func (r osRoot) openRoot(name string) (tree, error) {
	sub, err := r.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return osRoot{sub}, nil
}

func (r osRoot) backend() (name, reason string) {
	return "os", "only Linux has openat2, this is " + runtime.GOOS
}

// sparse copies holes as zeros.
func (c *copying) sparse(_ fs.FileInfo, _, to int64) error {
	return c.data(c.from, to, c.o.Blocks)
}

// borrowOS makes a File that os serves, without a claim on f.
func borrowOS(f *os.File) (*File, func(), error) {
	u := &File{state: &state{sys: defaultSystem(), fd: -1, name: f.Name()}}
	u.file.Store(f)
	return u, func() {}, nil
}

// canReadFiles returns false: there are no rings.
func (s *System) canReadFiles() bool { return false }

// filesRing stands for a ring of ReadFiles.
type filesRing struct {
	files []ringFile
	err   error
}

type ringFile struct {
	openFile
	whole bool
}

func (b *filesRing) open() error        { return errNoRings }
func (b *filesRing) close()             {}
func (b *filesRing) size() int          { return 0 }
func (b *filesRing) fill(int, []string) {}
func (b *filesRing) read() uint64       { return 0 }

// earlyFile returns the os.File: no ring has opened it.
func earlyFile(_ context.Context, fd int, name string) (f *os.File, stop func() bool, err error) {
	return os.NewFile(uintptr(fd), name), func() bool { return true }, nil
}
