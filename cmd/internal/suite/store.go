// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// Storages that can be measured.
const (
	// StorageDisk is the user's directory, file or block device.
	StorageDisk = "disk"
)

// store is a storage with the file that is read there.
type store struct {
	// dir takes further files; it is empty where the user's own file is read, which is all
	// that may be touched then.
	dir  string
	path string
	size int64
	// made is the file if this run created it, else nil.
	made   *datafile.File
	device string
	close  func() error
}

// content is the seed of the file's content, nil if this run did not write it.
func (s *store) content() *uint64 {
	if s.made == nil {
		return nil
	}
	seed := s.made.Seed()
	return &seed
}

// openStores prepares every storage that the grid uses, and notes those that cannot be had.
func (f *fileRun) openStores(ctx context.Context) error {
	if err := f.openDisk(ctx); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped before anything was measured: %w", ctx.Err())
		}
		f.skip(report.Skip{Reason: err.Error()})
		return ErrNothing
	}
	return nil
}

// openDisk takes the user's file or makes one, after removing what dead runs left there.
func (f *fileRun) openDisk(ctx context.Context) error {
	st := &store{device: f.run.Host.Device}
	if f.opts.Path != "" {
		size, err := datafile.SizeOf(f.opts.Path)
		if err != nil {
			return err
		}
		st.path, st.size = f.opts.Path, size
	} else {
		made, err := f.makeFile(ctx, f.opts.Dir)
		if err != nil {
			return err
		}
		st.dir, st.made, st.path, st.size = f.opts.Dir, made, made.Path(), made.Size()
	}
	f.stores[StorageDisk] = st
	f.run.Host.FileBytes, f.run.Host.Verified = st.size, st.made != nil
	return nil
}

// makeFile creates the file to read in dir.
func (f *fileRun) makeFile(ctx context.Context, dir string) (*datafile.File, error) {
	// A directory that cannot be listed may still take a new file.
	if stale, err := datafile.Sweep(dir); err == nil {
		for _, path := range stale {
			f.note("removed %s, which a killed run had left", path)
		}
	}
	f.env.Progress.Start(f.opts.Size, "writing the test file")
	made, err := f.env.Maker.Make(ctx, dir, f.opts.Size, f.opts.Seed, f.env.Progress.Add)
	if err != nil {
		return nil, fmt.Errorf("create a test file (--dir chooses where, --path takes an existing one): %w", err)
	}
	if made.Size() < f.opts.Size {
		f.note("the test file has %d MiB instead of %d: %s has no room for more", made.Size()>>20, f.opts.Size>>20, dir)
	}
	return made, nil
}

// closeStores removes what the run created.
func (f *fileRun) closeStores() error {
	var errs []error
	for _, st := range f.stores {
		if st.made != nil {
			errs = append(errs, st.made.Remove())
		}
		if st.close != nil {
			errs = append(errs, st.close())
		}
	}
	return errors.Join(errs...)
}
