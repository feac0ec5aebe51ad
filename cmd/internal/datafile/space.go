// SPDX-License-Identifier: MIT

package datafile

import (
	"context"
	"errors"
	"fmt"
	"os"
)

const (
	// MinSize is the smallest file that Fit falls back to when the wish does not fit, in bytes.
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

// Error names the missing space and the options that help.
func (e *SpaceError) Error() string {
	return fmt.Sprintf("not enough space in %s: %d MiB free, %d MiB needed; free some, or choose another "+
		"directory with --dir, a smaller file with --size, or an existing file with --path",
		e.Dir, e.Free>>20, e.Need>>20)
}

// Maker creates data files where there is room for them. Its zero value works; tests replace the
// functions.
type Maker struct {
	// Free returns the bytes an unprivileged process may still write below dir; an error
	// means unknown. Nil asks the file system.
	Free func(dir string) (int64, error)
	// Create makes the file. Nil is [Create].
	Create func(ctx context.Context, dir string, size int64, seed uint64, written func(int64)) (*File, error)
}

// Make creates a file of at most size bytes. If that does not fit it halves the size as long as
// at least [MinSize] remains (or the wish itself, if that was smaller), both before it starts, by
// what the file system says is free, and when a write meets the end of the device, a quota or a
// process limit. The error then matches [*SpaceError] or the write's error.
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
		return nil, fmt.Errorf("the device filled up while the test file was written (choose another "+
			"directory with --dir or a smaller file with --size): %w", err)
	}
	return m.Make(ctx, dir, roundDown(size/2), seed, written)
}

// fit halves size until it fits into what is free.
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

// Need returns a [SpaceError] if the file system of dir has less than need bytes free besides a
// reserve. Where the system does not tell, there is enough.
func Need(dir string, need int64) error {
	if have, err := freeSpace(dir); err == nil && have < need+reserve {
		return &SpaceError{Dir: dir, Need: need + reserve, Free: have}
	}
	return nil
}

func roundDown(n int64) int64 { return n - n%UnitSize }
