// SPDX-License-Identifier: MIT

// Package datafile creates the files that benchmarks read, and cleans up after killed runs.
//
// A file is written in units of [UnitSize] bytes. Each unit has the seed of its file, its own
// offset and a checksum over pseudo-random content. So a reader can check that it received the
// right bytes, and neither a device nor a file system can compress or deduplicate them.
//
// A file is locked with flock while its owner lives. An unlocked file whose name matches [Pattern]
// was left by a killed process; [Sweep] removes it.
package datafile

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	namePrefix = "ringside-bench-"
	nameSuffix = ".dat"
	// Pattern matches the names of data files; the star stands for 16 hexadecimal digits.
	Pattern = namePrefix + "*" + nameSuffix

	chunkSize = 1 << 20
	// syncEvery limits the amount of dirty data that must be written before an interrupted run
	// ends.
	syncEvery = 32 << 20
)

// File is a data file that this process created and owns.
type File struct {
	path string
	size int64
	seed uint64
	f    *os.File
}

// Path returns the path of the file.
func (d *File) Path() string { return d.path }

// Size returns the length in bytes.
func (d *File) Size() int64 { return d.size }

// Seed returns the seed of the content, for [Check].
func (d *File) Seed() uint64 { return d.seed }

// Remove deletes the scratch directory and then the file, and closes it. The name is removed before
// the file is closed, so that no sweep finds the file unlocked. Windows does not delete open files,
// so there the deletion is repeated after closing.
func (d *File) Remove() error {
	scratchErr := os.RemoveAll(scratchOf(d.path))
	err := os.Remove(d.path)
	closeErr := d.f.Close()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		err = os.Remove(d.path)
	}
	return errors.Join(scratchErr, err, closeErr)
}

// Create writes a file of size bytes (a multiple of [UnitSize]) into dir, syncs it to its device
// and locks it until [File.Remove]. If written is not nil, it is called with the number of bytes
// after each step. Create leaves nothing behind when ctx ends or a write fails.
func Create(ctx context.Context, dir string, size int64, seed uint64, written func(int64)) (*File, error) {
	if size <= 0 || size%UnitSize != 0 {
		return nil, fmt.Errorf("file size %d is not a multiple of %d", size, UnitSize)
	}
	d, err := createLocked(dir)
	if err != nil {
		return nil, err
	}
	d.size, d.seed = size, seed
	if err := d.fill(ctx, written); err != nil {
		return nil, errors.Join(err, d.Remove())
	}
	return d, nil
}

// createLocked creates a file and locks it. Another process may sweep the file between these two
// steps. Then the next name is tried.
func createLocked(dir string) (*File, error) {
	for range 256 {
		path := filepath.Join(dir, newName())
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		d := &File{path: path, f: f}
		err = lock(f)
		if err == nil && stillNamed(f, path) {
			return d, nil
		}
		if err != nil && !errors.Is(err, errLocked) {
			return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, d.Remove())
		}
		_ = f.Close() // Another process has removed the file, or holds the lock and is about to.
	}
	return nil, fmt.Errorf("no free file name in %s", dir)
}

func newName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // It never fails: it ends the program instead.
	return namePrefix + hex.EncodeToString(b[:]) + nameSuffix
}

// stillNamed reports whether path names the open file.
func stillNamed(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(open, named)
}

func (d *File) fill(ctx context.Context, written func(int64)) error {
	buf := make([]byte, chunkSize)
	for off, unsynced := int64(0), int64(0); off < d.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		chunk := buf[:min(chunkSize, d.size-off)]
		Fill(chunk, d.seed, off)
		n, err := d.f.WriteAt(chunk, off)
		if err != nil {
			return err
		}
		off += int64(n)
		if unsynced += int64(n); unsynced >= syncEvery || off == d.size {
			if err := d.f.Sync(); err != nil {
				return err
			}
			unsynced = 0
		}
		if written != nil {
			written(int64(n))
		}
	}
	return nil
}
