// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/fastdev"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// These are the storages.
const (
	// StorageDisk is the user's directory, file or block device.
	StorageDisk = "disk"
	// StorageFast is a file system in memory, limited only by the processor.
	StorageFast = "fast"
)

// fastDeviceName is the name of the device in reports, whatever the number of the loop device.
const fastDeviceName = "loop device in memory"

// store is a storage with the file that is read there.
type store struct {
	// dir holds further files. It is empty if the user's own file is read: then nothing else may be
	// touched.
	dir  string
	path string
	size int64
	// made is the file if this run created it, or else nil.
	made *datafile.File
	// written is a second file, which is overwritten. It is nil until it is needed. writes counts
	// the rounds that overwrote it.
	written *datafile.File
	writes  uint64
	// pebble is the directory of a database, or "" until it is needed.
	pebble string
	device string
	close  func() error
}

// content returns the seed of the file's content, or nil if this run did not create the file.
func (s *store) content() *uint64 {
	if s.made == nil {
		return nil
	}
	seed := s.made.Seed()
	return &seed
}

// openStores prepares the storages of the grid, and notes unavailable ones as skipped.
func (f *fileRun) openStores(ctx context.Context) error {
	for _, name := range f.opts.storages() {
		open, p := f.openDisk, report.Params(nil)
		if name == StorageFast {
			open, p = f.openFast, report.Params{"storage": name}
		}
		err := open(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("stopped before anything was measured: %w", ctx.Err())
		}
		if err != nil {
			f.skip(report.Skip{Params: p, Reason: err.Error()})
		}
	}
	if len(f.stores) == 0 {
		return ErrNothing
	}
	return nil
}

// openDisk uses the user's file or creates one, after removing files of killed runs.
func (f *fileRun) openDisk(ctx context.Context) error {
	st := &store{device: f.run.Host.Device}
	if f.opts.Path != "" {
		size, err := datafile.SizeOf(f.opts.Path)
		if err != nil {
			return err
		}
		st.path, st.size = f.opts.Path, size
	} else {
		made, err := f.makeFile(ctx, f.env.maker, f.opts.Dir, f.opts.Size)
		if err != nil {
			if full, ok := errors.AsType[*datafile.SpaceError](err); ok { // it names the remedy
				return full
			}
			return fmt.Errorf("create a test file: %w: choose another directory with --dir, a smaller file with --size, or an existing one with --path", err)
		}
		st.dir, st.made, st.path, st.size = f.opts.Dir, made, made.Path(), made.Size()
	}
	f.stores[StorageDisk] = st
	f.run.Host.FileBytes, f.run.Host.Verified = st.size, st.made != nil
	return nil
}

// openFast creates the storage in memory, with a file in it.
func (f *fileRun) openFast(ctx context.Context) (err error) {
	size, err := f.fastSize()
	if err != nil {
		return err
	}
	device, err := f.env.fastDevice(ctx, size+fastdev.Overhead)
	if err != nil {
		return err
	}
	made, err := f.makeFile(ctx, f.env.maker, device.Dir(), size)
	if err != nil {
		return errors.Join(fmt.Errorf("create a test file on the fast device: %w: choose a smaller one with --size", err), device.Close())
	}
	if note := device.Note(); note != "" {
		f.note("%s", note)
	}
	f.stores[StorageFast] = &store{
		dir: device.Dir(), path: made.Path(), size: made.Size(), made: made, device: fastDeviceName, close: device.Close,
	}
	f.run.Host.Storages = append(f.run.Host.Storages, report.Storage{
		Name: StorageFast, Device: fastDeviceName, Filesystem: device.Filesystem(), FileBytes: made.Size(),
	})
	return nil
}

// fastSize returns the size of the file in the storage in memory: at most a quarter of the available memory.
func (f *fileRun) fastSize() (int64, error) {
	size, free := f.opts.Size, f.env.availableMemory()
	smallest := min(size, datafile.MinSize)
	for free > 0 && size > free/4 {
		if size /= 2; size < smallest {
			return 0, fmt.Errorf("the fast device needs %d MiB of available memory, and %d MiB are available: free some, or leave the device out with --fast=none",
				4*smallest>>20, free>>20)
		}
	}
	return size - size%datafile.UnitSize, nil
}

// closeStores removes the files that the run created.
func (f *fileRun) closeStores() error {
	var errs []error
	for _, st := range f.stores {
		if st.written != nil {
			errs = append(errs, st.written.Remove())
		}
		if st.made != nil {
			errs = append(errs, st.made.Remove())
		}
		if st.close != nil {
			errs = append(errs, st.close())
		}
	}
	return errors.Join(errs...)
}
