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
	ResolveNoSymlinks   = unix.RESOLVE_NO_SYMLINKS
	ResolveNoMagiclinks = unix.RESOLVE_NO_MAGICLINKS
	ResolveNoXDev       = unix.RESOLVE_NO_XDEV
)

// Flags of [RenameAt2].
const (
	RenameNoReplace = unix.RENAME_NOREPLACE
	RenameExchange  = unix.RENAME_EXCHANGE
)

// AtCwd stands for the working directory in the place of a directory.
const AtCwd = unix.AT_FDCWD

// Flags of the calls that take a name.
const (
	AtEmptyPath = unix.AT_EMPTY_PATH
	AtNoFollow  = unix.AT_SYMLINK_NOFOLLOW
	AtRemoveDir = unix.AT_REMOVEDIR
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

// MkdirAt is mkdirat(2).
func MkdirAt(dir int, name string, mode uint32) error {
	return retry(func() error { return unix.Mkdirat(dir, name, mode) })
}

// UnlinkAt is unlinkat(2).
func UnlinkAt(dir int, name string, flags int) error {
	return retry(func() error { return unix.Unlinkat(dir, name, flags) })
}

// RenameAt2 is renameat2(2). (Linux 3.15)
func RenameAt2(oldDir int, oldName string, newDir int, newName string, flags uint) error {
	return retry(func() error { return unix.Renameat2(oldDir, oldName, newDir, newName, flags) })
}

// LinkAt is linkat(2), which does not follow a link at the end of oldName.
func LinkAt(oldDir int, oldName string, newDir int, newName string) error {
	return retry(func() error { return unix.Linkat(oldDir, oldName, newDir, newName, 0) })
}

// SymlinkAt is symlinkat(2).
func SymlinkAt(target string, dir int, name string) error {
	return retry(func() error { return unix.Symlinkat(target, dir, name) })
}

// ReadlinkAt is readlinkat(2); an empty name reads the link that dir is.
func ReadlinkAt(dir int, name string) (string, error) {
	for size := 256; ; size *= 2 {
		p := make([]byte, size)
		var n int
		err := retry(func() (err error) {
			n, err = unix.Readlinkat(dir, name, p)
			return err
		})
		if err != nil {
			return "", err
		}
		if n < size {
			return string(p[:n]), nil
		}
	}
}

// FchownAt is fchownat(2).
func FchownAt(dir int, name string, uid, gid, flags int) error {
	return retry(func() error { return unix.Fchownat(dir, name, uid, gid, flags) })
}

// IsDirAt says whether a name in a directory is a directory itself, and not a
// link to one.
func IsDirAt(dir int, name string) bool {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
