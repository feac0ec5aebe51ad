// SPDX-License-Identifier: MIT

// Package powercut simulates power cuts under databases. It records the file operations of SQLite,
// this VFS and its log of commits, and lets [powercut.Trace] build the possible contents of the
// disk.
package powercut

import (
	"bytes"
	"io/fs"
	"os"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// Recorder records the changes to the files of one directory.
type Recorder struct{ *powercut.Recorder }

// NewRecorder records the changes in an empty directory.
func NewRecorder(dir string) *Recorder {
	return &Recorder{powercut.NewRecorder(dir)}
}

// SyncDir makes the entries of a directory durable.
func (r *Recorder) SyncDir(dir string) error {
	return r.Synced(-1, r.Dir(dir), func() error { return disk.OS.SyncDir(dir) })
}

// recordedFS is the operating system's files, recorded.
type recordedFS struct {
	r *Recorder
	p *process
}

func (f recordedFS) Open(name string, flag disk.Flag, perm fs.FileMode) (disk.File, error) {
	if err := f.p.gone(); err != nil {
		return nil, err
	}
	var file disk.File
	number, err := f.r.Opened(name, func() (err error) {
		file, err = disk.OS.Open(name, flag, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &recordedFile{file, f.r, f.p, number, flag&disk.Durable != 0}, nil
}

func (f recordedFS) Lookup(name string) (disk.ID, error)   { return disk.OS.Lookup(name) }
func (f recordedFS) State(name string) (disk.State, error) { return disk.OS.State(name) }

func (f recordedFS) List(dir string) ([]string, error) { return disk.OS.List(dir) }

func (f recordedFS) Remove(name string) error {
	if err := f.p.gone(); err != nil {
		return err
	}
	return f.r.Removed(name, func() error { return os.Remove(name) })
}

func (f recordedFS) Rename(oldname, newname string) error {
	if err := f.p.gone(); err != nil {
		return err
	}
	return f.r.Renamed(oldname, newname, func() error { return os.Rename(oldname, newname) })
}

func (f recordedFS) SyncDir(dir string) error {
	if err := f.p.gone(); err != nil {
		return err
	}
	return f.r.SyncDir(dir)
}

type recordedFile struct {
	disk.File
	r       *Recorder
	p       *process
	number  int
	through bool
}

func (f *recordedFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.p.gone(); err != nil {
		return 0, err
	}
	if !f.through || f.number < 0 {
		n, err := f.File.WriteAt(p, off)
		f.r.Wrote(f.number, p[:n], off)
		return n, err
	}
	begin := f.r.Note(powercut.Op{Kind: powercut.Write, File: f.number, Off: off, Data: bytes.Clone(p), Through: true})
	if err := f.r.Fault("write", f.number); err != nil {
		return 0, err // it is not known what the disk has
	}
	n, err := f.File.WriteAt(p, off)
	if err == nil {
		f.r.Note(powercut.Op{Kind: powercut.End, Off: begin})
	}
	return n, err
}

func (f *recordedFile) Truncate(size int64) error {
	if err := f.p.gone(); err != nil {
		return err
	}
	err := f.File.Truncate(size)
	if err == nil && f.number >= 0 {
		f.r.Note(powercut.Op{Kind: powercut.Truncate, File: f.number, Off: size})
	}
	return err
}

func (f *recordedFile) Sync() error { return f.r.sync(f.p, f.number, f.File.Sync) }

// StateFS returns the operating system's files without syncs, which a built state does not need.
func StateFS() disk.FS { return stateFS{disk.OS} }

type stateFS struct{ disk.FS }

func (f stateFS) Open(name string, flag disk.Flag, perm fs.FileMode) (disk.File, error) {
	file, err := f.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return stateFile{file}, nil
}

func (stateFS) SyncDir(string) error { return nil }

type stateFile struct{ disk.File }

func (stateFile) Sync() error { return nil }
