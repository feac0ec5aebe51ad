// SPDX-License-Identifier: MIT

//go:build !linux

package disk

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"time"
)

const openFlags = 0

// openDurable opens a file whose writes are followed by a sync.
func openDurable(name string, mode int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, mode, perm)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f, syncs: true}, nil
}

func syncFile(f *os.File) error { return f.Sync() }

// syncDir does nothing on Windows, which has no call for it.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func lookup(name string) (ID, error) {
	return ID{}, &fs.PathError{Op: "stat", Path: name, Err: errors.ErrUnsupported}
}

func state(name string) (State, error) {
	return State{}, &fs.PathError{Op: "stat", Path: name, Err: errors.ErrUnsupported}
}

func (f *osFile) ID() (ID, error) {
	return ID{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: errors.ErrUnsupported}
}

func (f *osFile) TryLock(off, n int64) (bool, error) {
	return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: errors.ErrUnsupported}
}

func (f *osFile) Times() (written time.Time, mount uint64, err error) {
	return time.Time{}, 0, &fs.PathError{Op: "stat", Path: f.Name(), Err: errors.ErrUnsupported}
}
