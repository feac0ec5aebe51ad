// SPDX-License-Identifier: MIT

// Package datafile makes the files that benchmarks read, and cleans up after runs that died.
//
// A file is written in units of [UnitSize] bytes. Each unit carries the seed of its file, its own
// offset and a checksum over pseudo-random content, so a reader can tell that it received the
// right bytes, and neither a device nor a file system can compress or deduplicate them.
//
// While its owner lives a file is locked with flock. A file with the recognisable name of
// [Pattern] that is not locked was left by a process that was killed; [Sweep] removes it.
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
	// Pattern is how a data file is called: 16 hexadecimal digits between the two stars' places.
	Pattern = namePrefix + "*" + nameSuffix

	chunkSize = 1 << 20
	// syncEvery bounds how much dirty data an interrupt has to wait for.
	syncEvery = 32 << 20
)

// File is a data file that this process made and owns.
type File struct {
	path string
	size int64
	seed uint64
	f    *os.File
}

// Path returns where the file lies.
func (d *File) Path() string { return d.path }

// Size returns the length in bytes.
func (d *File) Size() int64 { return d.size }

// Seed returns the seed of the content, for [Check].
func (d *File) Seed() uint64 { return d.seed }

// Remove deletes and closes the file, and before it its scratch directory. The file's name goes
// first, so that no sweep finds it unlocked; Windows deletes no open file, so there it is tried
// again.
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
// and locks it until [File.Remove]. The written function, if not nil, is called with the number
// of bytes after each step. When ctx ends or a write fails nothing is left behind.
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

// createLocked opens a new file and takes its lock. A sweep of another process may win the race
// between the two steps and delete the file; then the next name is tried.
func createLocked(dir string) (*File, error) {
	for range 16 {
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
		_ = f.Close() // A sweeper has removed the name, or holds the lock and is about to.
	}
	return nil, fmt.Errorf("no free file name in %s", dir)
}

func newName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // Never fails: it ends the program instead.
	return namePrefix + hex.EncodeToString(b[:]) + nameSuffix
}

// stillNamed reports whether path leads to the open file.
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
