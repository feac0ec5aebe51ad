// SPDX-License-Identifier: MIT

package powercut

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// Recorder records the changes to the files of one directory, which must be empty at
// the beginning. Its methods may be called concurrently.
type Recorder struct {
	dir string

	mu    sync.Mutex
	trace Trace
	names map[string]int // of files that exist
}

// NewRecorder records what happens in a directory.
func NewRecorder(dir string) *Recorder {
	return &Recorder{dir: filepath.Clean(dir), names: map[string]int{}}
}

// Ack records that a commit was acknowledged as durable. Commits have increasing
// numbers.
func (r *Recorder) Ack(name string, commit int) {
	r.note(Op{Kind: Ack, Name: name, Off: int64(commit)})
}

// Trace returns what was recorded until now. An open group log may continue to write
// meanwhile, because it prepares segments.
func (r *Recorder) Trace() *Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.trace // of which there will only be more, but for names
	t.Files = slices.Clone(t.Files)
	return &t
}

// note appends an operation and returns its number.
func (r *Recorder) note(op Op) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noteLocked(op)
}

func (r *Recorder) noteLocked(op Op) int64 {
	r.trace.Ops = append(r.trace.Ops, op)
	return int64(len(r.trace.Ops) - 1)
}

// relative returns the name below the recorder's directory.
func (r *Recorder) relative(name string) (string, bool) {
	rel, err := filepath.Rel(r.dir, name)
	return rel, err == nil && filepath.IsLocal(rel) && rel != "."
}

// opened records the name of a file that open opens and returns its number, -1 if it
// is not in this directory.
func (r *Recorder) opened(name string, open func() error) (int, error) {
	rel, ok := r.relative(name)
	if !ok {
		return -1, open()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := open(); err != nil {
		return -1, err
	}
	if file, ok := r.names[rel]; ok {
		return file, nil
	}
	file := len(r.trace.Files)
	r.names[rel] = file
	r.trace.Files = append(r.trace.Files, rel)
	r.noteLocked(Op{Kind: Create, File: file, Name: rel})
	return file, nil
}

// removed records that a name was removed.
func (r *Recorder) removed(name string, remove func() error) error {
	rel, ok := r.relative(name)
	if !ok {
		return remove()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := remove(); err != nil {
		return err
	}
	if _, ok := r.names[rel]; ok {
		delete(r.names, rel)
		r.noteLocked(Op{Kind: Unlink, Name: rel})
	}
	return nil
}

// synced records a sync of a file, or of a directory if dir is not empty.
func (r *Recorder) synced(file int, dir string, sync func() error) error {
	if file < 0 && dir == "" {
		return sync()
	}
	begin := r.note(Op{Kind: Begin, File: file, Name: dir})
	if err := sync(); err != nil {
		return err
	}
	r.note(Op{Kind: End, Off: begin})
	return nil
}

// wrote records a write.
func (r *Recorder) wrote(file int, p []byte, off int64) {
	if file >= 0 {
		r.note(Op{Kind: Write, File: file, Off: off, Data: bytes.Clone(p)})
	}
}

// SyncDir makes the entries of a directory durable.
func (r *Recorder) SyncDir(dir string) error {
	return r.synced(-1, r.dirName(dir), func() error { return disk.OS.SyncDir(dir) })
}

func (r *Recorder) dirName(dir string) string {
	rel, err := filepath.Rel(r.dir, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	return rel
}

// FS returns the operating system's files, recorded.
func (r *Recorder) FS() disk.FS { return recordedFS{r} }

type recordedFS struct{ r *Recorder }

func (f recordedFS) Open(name string, flag disk.Flag, perm fs.FileMode) (disk.File, error) {
	var file disk.File
	number, err := f.r.opened(name, func() (err error) {
		file, err = disk.OS.Open(name, flag, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &recordedFile{file, f.r, number, flag&disk.Durable != 0}, nil
}

func (f recordedFS) Lookup(name string) (disk.ID, error) { return disk.OS.Lookup(name) }

func (f recordedFS) List(dir string) ([]string, error) { return disk.OS.List(dir) }

func (f recordedFS) Remove(name string) error {
	return f.r.removed(name, func() error { return os.Remove(name) })
}

func (f recordedFS) Rename(oldname, newname string) error {
	from, _ := f.r.relative(oldname)
	to, _ := f.r.relative(newname)
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if err := os.Rename(oldname, newname); err != nil {
		return err
	}
	f.r.names[to] = f.r.names[from]
	f.r.trace.Files[f.r.names[to]] = to
	delete(f.r.names, from)
	f.r.noteLocked(Op{Kind: Rename, Name: from, To: to})
	return nil
}

func (f recordedFS) SyncDir(dir string) error { return f.r.SyncDir(dir) }

type recordedFile struct {
	disk.File
	r       *Recorder
	number  int
	through bool
}

func (f *recordedFile) WriteAt(p []byte, off int64) (int, error) {
	if !f.through || f.number < 0 {
		n, err := f.File.WriteAt(p, off)
		f.r.wrote(f.number, p[:n], off)
		return n, err
	}
	begin := f.r.note(Op{Kind: Write, File: f.number, Off: off, Data: bytes.Clone(p), Through: true})
	n, err := f.File.WriteAt(p, off)
	if err == nil {
		f.r.note(Op{Kind: End, Off: begin})
	}
	return n, err
}

func (f *recordedFile) Truncate(size int64) error {
	err := f.File.Truncate(size)
	if err == nil && f.number >= 0 {
		f.r.note(Op{Kind: Truncate, File: f.number, Off: size})
	}
	return err
}

func (f *recordedFile) Sync() error { return f.r.synced(f.number, "", f.File.Sync) }
