// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// LockMode is what a call does to a lock.
type LockMode int

const (
	LockShared    LockMode = iota // take it together with other shared holders
	LockExclusive                 // take it alone
	Unlock                        // give it back
)

// Flock locks the whole file against other openings of it, in this process and in
// others, as flock(2), and waits until it can. A lock that is held changes its mode;
// meanwhile another opening may get it. The lock belongs to the opening: descriptors
// that were duplicated or inherited share it, and it ends when the last of them is
// closed. Locks are advisory: reads and writes do not look at them. Waiting takes a
// thread, and Close does not end it. An *fs.PathError wraps the errno; where a system
// has no such call it wraps errors.ErrUnsupported.
func (f *File) Flock(mode LockMode) error {
	return f.control("flock", func(fd int) error { return sys.Flock(fd, int(mode), true) })
}

// TryFlock is Flock that does not wait: it reports false when another opening holds
// the lock.
func (f *File) TryFlock(mode LockMode) (bool, error) {
	return tried(f.control("flock", func(fd int) error { return sys.Flock(fd, int(mode), false) }))
}

// LockRange locks n bytes of the file from an offset on against other openings of it,
// as fcntl(2) with F_OFD_SETLKW, and waits until it can; n = 0 means up to any end.
// The bytes need not exist. The lock belongs to the opening, as that of Flock, and not
// to the process as other record locks do. LockShared needs a file that is open for
// reading, LockExclusive one that is open for writing. The kernel does not detect
// deadlocks. Waiting takes a thread, and Close does not end it. (Linux 3.15; elsewhere
// the error is errors.ErrUnsupported)
func (f *File) LockRange(mode LockMode, off, n int64) error {
	return f.control("lock", func(fd int) error { return sys.LockRange(fd, int(mode), off, n, true) })
}

// TryLockRange is LockRange that does not wait: it reports false when another opening
// holds a lock on one of the bytes.
func (f *File) TryLockRange(mode LockMode, off, n int64) (bool, error) {
	return tried(f.control("lock", func(fd int) error { return sys.LockRange(fd, int(mode), off, n, false) }))
}

// tried tells a lock that another holds from an error.
func tried(err error) (bool, error) {
	if errors.Is(err, syscall.EAGAIN) { // EWOULDBLOCK is the same
		return false, nil
	}
	return err == nil, err
}
