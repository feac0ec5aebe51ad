// SPDX-License-Identifier: MIT

package disk

import (
	"io/fs"
	"os"

	"github.com/ringside-io/ringside/internal/sys"
)

type osFS struct{}

func (osFS) Open(name string, flag Flag, perm fs.FileMode) (File, error) {
	mode := os.O_RDWR | openFlags
	if flag&ReadOnly != 0 {
		mode = os.O_RDONLY | openFlags
	}
	if flag&Create != 0 {
		mode |= os.O_CREATE
	}
	if flag&Exclusive != 0 {
		mode |= os.O_EXCL
	}
	if flag&Durable != 0 {
		return openDurable(name, mode, perm)
	}
	f, err := os.OpenFile(name, mode, perm)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

func (osFS) Lookup(name string) (ID, error)   { return lookup(name) }
func (osFS) State(name string) (State, error) { return state(name) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

func (osFS) Remove(name string) error             { return os.Remove(name) }
func (osFS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }
func (osFS) SyncDir(dir string) error             { return syncDir(dir) }

// osFile is a file of the operating system.
type osFile struct {
	*os.File
	syncs bool // each write is followed by a sync
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	if err == nil && f.syncs {
		err = f.Sync()
	}
	return n, err
}

func (f *osFile) Uncache() {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { sys.Uncache(int(fd)) })
	}
}

func (f *osFile) Sync() error { return syncFile(f.File) }

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}
