// SPDX-License-Identifier: MIT

package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// The calls of this file take a directory and a name below it. Their errors
// are bare errnos, as os wants them in its errors; a signal does not end them.

// Flags of [OpenAt2], beside those of package syscall.
const (
	OPath      = unix.O_PATH
	OTmpfile   = unix.O_TMPFILE
	OLargefile = unix.O_LARGEFILE

	ResolveBeneath      = unix.RESOLVE_BENEATH
	ResolveNoMagiclinks = unix.RESOLVE_NO_MAGICLINKS
)

// Flags of [RenameAt2].
const (
	RenameExchange = unix.RENAME_EXCHANGE
)

// AtCwd stands for the working directory in the place of a directory.
const AtCwd = unix.AT_FDCWD

// Flags of the calls that take a name.
const (
	AtEmptyPath = unix.AT_EMPTY_PATH
	AtNoFollow  = unix.AT_SYMLINK_NOFOLLOW
)

// retry repeats a call that a signal interrupted.
func retry(call func() error) error {
	for {
		if Faulty {
			if _, errno := faulty("path call", 1); errno == syscall.EINTR {
				continue
			} else if errno != 0 {
				return errno
			}
		}
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// OpenAt2 is openat2(2); the descriptor has close-on-exec set. mode counts only
// where a file is created. (Linux 5.6)
func OpenAt2(dir int, name string, flags int, mode uint32, resolve uint64) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(uint32(flags | unix.O_CLOEXEC)), Resolve: resolve}
	if flags&unix.O_CREAT != 0 || flags&unix.O_TMPFILE == unix.O_TMPFILE {
		how.Mode = uint64(mode)
	}
	err = retry(func() error {
		fd, err = unix.Openat2(dir, name, &how)
		return err
	})
	return fd, err
}

// Fstat is fstat(2).
func Fstat(fd int, st *syscall.Stat_t) error {
	return retry(func() error { return syscall.Fstat(fd, st) })
}

// RenameAt2 is renameat2(2). (Linux 3.15)
func RenameAt2(oldDir int, oldName string, newDir int, newName string, flags uint) error {
	return retry(func() error { return unix.Renameat2(oldDir, oldName, newDir, newName, flags) })
}
