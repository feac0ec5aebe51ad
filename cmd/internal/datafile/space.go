// SPDX-License-Identifier: MIT

package datafile

import (
	"context"
	"errors"
	"fmt"
	"os"
)

const (
	// MinSize is the smallest size, in bytes, to which a file is reduced when there is not enough
	// space.
	MinSize = 64 << 20
	// reserve is left free for other users of the file system, in bytes.
	reserve = 64 << 20
)

// SpaceError reports that dir has no room for a data file.
type SpaceError struct {
	// Dir is the directory.
	Dir string
	// Need and Free are in bytes.
	Need, Free int64
}

// Error returns the missing space and the remedy that all commands have.
func (e *SpaceError) Error() string {
	return fmt.Sprintf("not enough space in %s: %d MiB free, %d MiB needed: free some, or choose another directory with --dir",
		e.Dir, e.Free>>20, e.Need>>20)
}

// Maker creates data files and checks for free space first. Its zero value works; tests replace the
// functions.
type Maker struct {
	// Free returns the number of bytes that an unprivileged process may still write below dir. An
	// error means that it is unknown. Nil asks the file system.
	Free func(dir string) (int64, error)
	// Create creates the file. Nil means [Create].
	Create func(ctx context.Context, dir string, size int64, seed uint64, written func(int64)) (*File, error)
}

// Make creates a file of at most size bytes. If there is not enough space it halves the size while
// at least [MinSize] remains (or size itself, if that is smaller). It does so before it starts, if
// the file system reports too little free space, and when a write reaches the end of the device, a
// quota or a process limit. If even that fails the error matches [*SpaceError] or the write's
// error.
func (m Maker) Make(ctx context.Context, dir string, size int64, seed uint64, written func(int64)) (*File, error) {
	smallest := min(size, MinSize)
	create := m.Create
	if create == nil {
		create = Create
	}
	size, err := m.fit(dir, size, smallest)
	if err != nil {
		return nil, err
	}
	d, err := create(ctx, dir, size, seed, written)
	if err == nil || !isNoSpace(err) {
		return d, err
	}
	if size/2 < smallest {
		return nil, fmt.Errorf("the device filled up while the test file was written: %w", err)
	}
	return m.Make(ctx, dir, roundDown(size/2), seed, written)
}

// fit halves size until it fits into the free space.
func (m Maker) fit(dir string, size, smallest int64) (int64, error) {
	free := m.Free
	if free == nil {
		free = freeSpace
	}
	have, err := free(dir)
	if errors.Is(err, errors.ErrUnsupported) {
		return size, nil
	}
	if err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	want := size
	for want+reserve > have {
		if want/2 < smallest {
			return 0, &SpaceError{Dir: dir, Need: want + reserve, Free: have}
		}
		want = roundDown(want / 2)
	}
	return want, nil
}

// Need returns a [SpaceError] if the file system of dir has less than need bytes free, plus a
// reserve. If the free space is unknown it returns nil.
func Need(dir string, need int64) error {
	if have, err := freeSpace(dir); err == nil && have < need+reserve {
		return &SpaceError{Dir: dir, Need: need + reserve, Free: have}
	}
	return nil
}

func roundDown(n int64) int64 { return n - n%UnitSize }
