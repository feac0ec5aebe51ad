// SPDX-License-Identifier: MIT

package ufiletest

import (
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// File is what the suite uses of os.File. All methods must be safe for
// concurrent use, and a nil pointer must answer as a nil *os.File does.
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

// opener opens a file as os.OpenFile.
type opener func(name string, flag int, perm fs.FileMode) (File, error)

// OS opens the reference. A test of the suite itself runs it with OS.
func OS(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	return f, nil
}
