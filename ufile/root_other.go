// SPDX-License-Identifier: MIT

//go:build !linux

package ufile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// osRoot is os.Root.
type osRoot struct{ *os.Root }

func openTree(name string, o RootOptions) (tree, error) {
	if o != (RootOptions{}) {
		err := fmt.Errorf("only Linux has it: %w", errors.ErrUnsupported)
		return nil, &fs.PathError{Op: "openat2", Path: name, Err: err}
	}
	r, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return osRoot{r}, nil
}

func (r osRoot) openRoot(name string) (tree, error) {
	sub, err := r.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return osRoot{sub}, nil
}

func (r osRoot) confined() bool { return false }

func (r osRoot) backend() (name, reason string) {
	return "os", "only Linux has openat2, this is " + runtime.GOOS
}

func (r osRoot) statx(name string, _ StatxMask, flags StatxFlags) (StatxInfo, error) {
	look := r.Stat
	if flags&StatxNoFollow != 0 {
		look = r.Lstat
	}
	info, err := look(name)
	if err != nil {
		return StatxInfo{}, &fs.PathError{Op: "statx", Path: name, Err: cause(err)}
	}
	return statxOfInfo(info), nil
}

func (r osRoot) rename2(oldname, newname string, _ uint) error {
	return &os.LinkError{Op: "renameat", Old: oldname, New: newname, Err: errors.ErrUnsupported}
}

func (r osRoot) withInode(op, name string, _ func(i inode) error) error {
	return &fs.PathError{Op: op, Path: name, Err: errors.ErrUnsupported}
}
