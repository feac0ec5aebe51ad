// SPDX-License-Identifier: MIT

package sys

import "golang.org/x/sys/unix"

// Inode names what a call about extended attributes is about: an open file by
// its descriptor, or, with a name, what the name leads to.
type Inode struct {
	FD       int
	Name     string // counts when not empty
	NoFollow bool   // a link at the end of Name is itself meant
}

// Getxattr is getxattr(2) and its relatives. The errors of this and the
// following functions are bare errnos, as os wants them in its errors.
func Getxattr(i Inode, attr string, p []byte) (n int, err error) {
	err = retry(func() (err error) {
		switch {
		case i.Name == "":
			n, err = unix.Fgetxattr(i.FD, attr, p)
		case i.NoFollow:
			n, err = unix.Lgetxattr(i.Name, attr, p)
		default:
			n, err = unix.Getxattr(i.Name, attr, p)
		}
		return err
	})
	return n, err
}

// Setxattr is setxattr(2) and its relatives.
func Setxattr(i Inode, attr string, p []byte, flags int) error {
	return retry(func() error {
		switch {
		case i.Name == "":
			return unix.Fsetxattr(i.FD, attr, p, flags)
		case i.NoFollow:
			return unix.Lsetxattr(i.Name, attr, p, flags)
		}
		return unix.Setxattr(i.Name, attr, p, flags)
	})
}

// Listxattr is listxattr(2) and its relatives.
func Listxattr(i Inode, p []byte) (n int, err error) {
	err = retry(func() (err error) {
		switch {
		case i.Name == "":
			n, err = unix.Flistxattr(i.FD, p)
		case i.NoFollow:
			n, err = unix.Llistxattr(i.Name, p)
		default:
			n, err = unix.Listxattr(i.Name, p)
		}
		return err
	})
	return n, err
}

// Removexattr is removexattr(2) and its relatives.
func Removexattr(i Inode, attr string) error {
	return retry(func() error {
		switch {
		case i.Name == "":
			return unix.Fremovexattr(i.FD, attr)
		case i.NoFollow:
			return unix.Lremovexattr(i.Name, attr)
		}
		return unix.Removexattr(i.Name, attr)
	})
}
