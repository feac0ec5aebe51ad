// SPDX-License-Identifier: MIT

package replica

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/ringside-io/ringside/appendlog"
)

// disk holds a test's hooks for syncs, and who notices those that hang. The zero value does nothing.
type disk struct {
	around  func(path string, sync func() error) error
	written func(appendlog.SegmentInfo) error // see raftlog.Options
	fitness watcher                           // nil in some tests
}

// sync syncs a file by calling f.
func (d *disk) sync(path string, f func() error) error {
	if d.fitness != nil {
		defer d.fitness.begin(false)()
	}
	return d.hooked(path, f)
}

func (d *disk) hooked(path string, f func() error) error {
	if d.around != nil {
		return d.around(path, f)
	}
	return f()
}

func (d *disk) syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.sync(name, f.Sync), f.Close())
}

// writeFile replaces a file durably.
func (d *disk) writeFile(name string, p []byte) error {
	tmp := name + ".new"
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(p)
	if err == nil {
		err = d.sync(tmp, f.Sync)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.rename(tmp, name)
	}
	return err
}

// rename gives a synced file its name, durably.
func (d *disk) rename(old, name string) error {
	err := os.Rename(old, name)
	if err == nil {
		err = d.syncFile(filepath.Dir(name))
	}
	if err != nil {
		return err
	}
	return d.sync(name, func() error { return nil })
}

// mkdirAll makes a directory and those above it, durably.
func (d *disk) mkdirAll(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrNotExist) {
		if err = d.mkdirAll(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	switch {
	case err == nil:
		return d.syncFile(filepath.Dir(dir))
	case errors.Is(err, os.ErrExist):
		return nil
	}
	return err
}

// removeBeside removes the WAL and the WAL index of a database.
func removeBeside(path string) error {
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// watcher notices calls of the file system that hang or fail, see fitness.
type watcher interface {
	begin(log bool) (end func())
	logFailed(error)
}
