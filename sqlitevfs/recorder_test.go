// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// recorder is a base that records the changes to files, and fails on request.
type recorder struct {
	vfs.VFS
	ordered bool // see ringVFS
	mu      sync.Mutex
	events  []string
	fail    func(event string) error
}

func (r *recorder) Ordered() bool { return r.ordered }

// record registers a recorder and a VFS of this package above it.
func record(t testing.TB, o Options) (string, *recorder) {
	r := &recorder{VFS: vfs.Find("")}
	o.Base = "base-" + t.Name()
	vfs.Register(o.Base, r)
	t.Cleanup(func() { vfs.Unregister(o.Base) })
	return register(t, o), r
}

func (r *recorder) note(format string, args ...any) error {
	e := fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if r.fail != nil {
		return r.fail(e)
	}
	return nil
}

// take returns the changes since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.events
	r.events = nil
	return slices.Compact(e)
}

func (r *recorder) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return r.VFS.Open(name, flags)
}

func (r *recorder) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if fail := r.fail; fail != nil && flags&vfs.OPEN_WAL != 0 {
		if err := fail("open wal"); err != nil {
			return nil, flags, err
		}
	}
	f, out, err := vfsutil.WrapOpenFilename(r.VFS, name, flags)
	if err != nil {
		return f, out, err
	}
	kind := "db"
	switch {
	case flags&vfs.OPEN_MAIN_JOURNAL != 0:
		kind = "journal"
	case flags&vfs.OPEN_WAL != 0:
		kind = "wal"
	case flags&vfs.OPEN_MAIN_DB == 0:
		return f, out, nil
	}
	return &recorded{File: f, r: r, kind: kind}, out, nil
}

func (r *recorder) Delete(name string, syncDir bool) error {
	_, suffix, _ := strings.Cut(filepath.Base(name), "-")
	if err := r.note("delete %s", suffix); err != nil {
		return err
	}
	return r.VFS.Delete(name, syncDir)
}

func (r *recorder) SyncDir(string) error { return r.note("sync dir") }

type recorded struct {
	vfs.File
	r    *recorder
	kind string
}

func (f *recorded) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

func (f *recorded) LockState() vfs.LockLevel { return vfsutil.WrapLockState(f.File) }

func (f *recorded) WriteAt(p []byte, off int64) (int, error) {
	if err := f.r.note("write %s", f.kind); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *recorded) Sync(flags vfs.SyncFlag) error {
	if err := f.r.note("sync %s", f.kind); err != nil {
		return err
	}
	return f.File.Sync(flags)
}
