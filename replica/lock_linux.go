// SPDX-License-Identifier: MIT

package replica

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// supported reports whether the module works on this system. It needs Linux's locks of open
// file descriptions, which SQLite's VFS uses.
const supported = true

const ofdSetLock = 37 // F_OFD_SETLK

// tryLock locks a byte of a file exclusively, for the open file description and not for the
// process. It returns false if another one has a lock on the byte.
func tryLock(f *os.File, at int64) (bool, error) {
	err := lock(f, at, syscall.F_WRLCK)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File, at int64) error { return lock(f, at, syscall.F_UNLCK) }

func lock(f *os.File, at int64, kind int16) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lerr error
	if err := c.Control(func(fd uintptr) {
		lerr = syscall.FcntlFlock(fd, ofdSetLock, &syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1})
	}); err != nil {
		return err
	}
	return lerr
}

// mapShared maps the first size bytes of a file.
func mapShared(f *os.File, size int) ([]byte, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var p []byte
	var merr error
	if err := c.Control(func(fd uintptr) {
		p, merr = syscall.Mmap(int(fd), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}); err != nil {
		return nil, err
	}
	return p, os.NewSyscallError("mmap", merr)
}

// unmap ends a mapping; nil is none.
func unmap(p []byte) error {
	if p == nil {
		return nil
	}
	return os.NewSyscallError("munmap", syscall.Munmap(p))
}

// space returns the free and the whole size of a directory's file system in bytes.
func space(dir string) (free, total uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, os.NewSyscallError("statfs", err)
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}
