// SPDX-License-Identifier: MIT

//go:build !linux

package ufile

import "errors"

// ErrNoXattr is matched by the error of a call that names an extended
// attribute which the file does not have.
var ErrNoXattr error = errors.New("no such attribute")

type inode struct {
	FD   int
	Name string
}

func getxattr(inode, string) ([]byte, error) { return nil, errors.ErrUnsupported }

func setxattr(inode, string, []byte, XattrFlags) error { return errors.ErrUnsupported }

func listxattr(inode) ([]string, error) { return nil, errors.ErrUnsupported }

func removexattr(inode, string) error { return errors.ErrUnsupported }
