// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// LockMode selects what [File.Flock] and [File.LockRange] do.
type LockMode int

const (
	LockShared    LockMode = iota // take a shared lock
	LockExclusive                 // take an exclusive lock
	Unlock                        // release the lock
)

// Flock locks or unlocks the whole file, like flock(2), and waits until the lock is free.
// The lock excludes other open file descriptions of the file, in this process and in
// others. If the File already holds a lock, Flock changes its mode. This is not atomic:
// another open file description may get the lock in between.
//
// The lock belongs to the open file description. Duplicated and inherited descriptors
// share it, and closing the last of them releases it. Locks are advisory: reads and
// writes ignore them. A call that waits occupies a thread, and Close does not end it.
// Errors are a *fs.PathError that wraps the errno, or errors.ErrUnsupported where the
// system has no such call.
//
// If the process is killed while a ring has operations of the File, the kernel releases the
// lock only when it has taken the ring down, up to some 30 ms after the end of the process.
// A lock on a File of its own, which is not read or written, is released at once.
func (f *File) Flock(mode LockMode) error {
	return f.control("flock", func(fd int) error { return sys.Flock(fd, int(mode), true) })
}

// TryFlock is [File.Flock] without the wait. It returns false and no error if another
// open file description holds a lock that excludes this one.
func (f *File) TryFlock(mode LockMode) (bool, error) {
	return tried(f.control("flock", func(fd int) error { return sys.Flock(fd, int(mode), false) }))
}

// LockRange locks or unlocks n bytes of the file at the offset off, like fcntl(2)
// with F_OFD_SETLKW, and waits until the lock is free. With n = 0 the range has no end.
// The bytes need not exist. As with [File.Flock], the lock belongs to the open file
// description, not to the process as traditional record locks do.
//
// LockShared needs a file that is open for reading, LockExclusive a file that is open for
// writing. The kernel does not detect deadlocks. A call that waits occupies a thread, and
// Close does not end it. LockRange needs Linux 3.15. On other systems the error is
// errors.ErrUnsupported.
func (f *File) LockRange(mode LockMode, off, n int64) error {
	return f.control("lock", func(fd int) error { return sys.LockRange(fd, int(mode), off, n, true) })
}

// TryLockRange is [File.LockRange] without the wait. It returns false and no error if
// another open file description holds a lock on one of the bytes that excludes this one.
func (f *File) TryLockRange(mode LockMode, off, n int64) (bool, error) {
	return tried(f.control("lock", func(fd int) error { return sys.LockRange(fd, int(mode), off, n, false) }))
}

// tried returns false without an error if another open file description holds the lock.
func tried(err error) (bool, error) {
	if errors.Is(err, syscall.EAGAIN) { // EWOULDBLOCK is the same
		return false, nil
	}
	return err == nil, err
}
