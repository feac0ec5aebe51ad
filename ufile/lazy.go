// SPDX-License-Identifier: MIT

package ufile

import (
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/ringside-io/ringside/internal/sys"
)

// Opening an os.File takes seven system calls: os asks epoll whether it can wait for the file. A
// File of a regular file that the kernel reads without blocking, which epoll refuses, makes its
// os.File when a method needs it. ReadAt, Batch, Mapped, Stats and Close do not.

// testLogged reports whether "go test" records the files that the test opens by package os, so
// that it runs again when they have changed.
var testLogged = sync.OnceValue(func() bool {
	return slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.testlogfile=") })
})

// openLazy opens a file without an os.File. It returns nil for files that package os is to open.
func (s *System) openLazy(name string, flag int) *File {
	if s.opts.Mode == ModePlain || testLogged() {
		return nil
	}
	fd := sys.OpenRegular(name, flag)
	if fd < 0 {
		return nil
	}
	f := &File{lazy: true, state: &state{sys: s, fd: fd, name: name}}
	f.dropped = runtime.AddCleanup(f, func(st *state) { go st.drop() }, f.state)
	s.retryRings()
	return f
}

// drop closes a File that was opened without an os.File and became unreachable. The operations in
// flight end first.
func (st *state) drop() {
	st.lock.Close()
	_ = st.closeLazy()
	_ = st.sys.forget(st)
}

// closeLazy closes the descriptor, unless an os.File owns it. The error is a bare errno.
func (st *state) closeLazy() error {
	if st.file.Load() != nil {
		return nil
	}
	return sys.CloseFile(st.fd)
}

// none reports whether there is no file: the methods return os.ErrInvalid.
func (f *File) none() bool { return f == nil || f.state == nil }

// std returns the os.File. For a nil File it is nil: the methods of a nil *os.File return
// os.ErrInvalid.
func (f *File) std() *os.File {
	if f.none() {
		return nil
	}
	if std := f.file.Load(); std != nil {
		return std
	}
	return f.makeStd()
}

// makeStd makes the os.File, which takes over the descriptor. That of a closed File is closed.
func (f *File) makeStd() *os.File {
	defer runtime.KeepAlive(f) // until the lock is taken
	f.mu.Lock()
	defer f.mu.Unlock()
	if std := f.file.Load(); std != nil {
		return std
	}
	if !f.lock.Acquire() {
		std := os.NewFile(math.MaxInt32, f.name) // no descriptor has this number
		_ = std.Close()                          // EBADF
		return std
	}
	defer f.lock.Release()
	std := os.NewFile(uintptr(f.fd), f.name)
	f.file.Store(std)
	return std
}
