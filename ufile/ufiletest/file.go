// SPDX-License-Identifier: MIT

package ufiletest

import (
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// File has the methods of os.File that the suite calls. They must be safe for concurrent
// use. On a nil pointer they must return what the methods of a nil *os.File return.
type File interface {
	fs.ReadDirFile
	io.ReaderAt
	io.WriterAt
	io.Writer
	io.StringWriter
	io.Seeker
	io.ReaderFrom
	io.WriterTo
	Name() string
	Fd() uintptr
	SyscallConn() (syscall.RawConn, error)
	Sync() error
	Truncate(size int64) error
	Chmod(mode fs.FileMode) error
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// opener opens a file like os.OpenFile.
type opener func(name string, flag int, perm fs.FileMode) (File, error)

// OS opens a file of the reference implementation, by os.OpenFile. A test of the suite
// itself passes it to [Run].
func OS(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	return f, nil
}
