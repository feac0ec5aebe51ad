// SPDX-License-Identifier: MIT

package powercut

import (
	"bytes"
	"path/filepath"
	"slices"
	"sync"
)

// Recorder records the changes to the files of one directory, which must be empty at
// the beginning. Its methods may be called concurrently.
type Recorder struct {
	dir    string
	faults faults

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
	r.Note(Op{Kind: Ack, Name: name, Off: int64(commit)})
}

// Trace returns what was recorded until now. The program may continue to write
// meanwhile.
func (r *Recorder) Trace() *Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.trace // of which there will only be more, but for names
	t.Files = slices.Clone(t.Files)
	return &t
}

// Note appends an operation and returns its number.
func (r *Recorder) Note(op Op) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noteLocked(op)
}

func (r *Recorder) noteLocked(op Op) int64 {
	r.trace.Ops = append(r.trace.Ops, op)
	return int64(len(r.trace.Ops) - 1)
}

// Relative returns the name below the recorder's directory.
func (r *Recorder) Relative(name string) (string, bool) {
	rel, err := filepath.Rel(r.dir, name)
	return rel, err == nil && filepath.IsLocal(rel) && rel != "."
}

// Opened records the name of a file that open opens and returns its number, -1 if it
// is not in this directory.
func (r *Recorder) Opened(name string, open func() error) (int, error) {
	rel, ok := r.Relative(name)
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

// Removed records that a name was removed.
func (r *Recorder) Removed(name string, remove func() error) error {
	rel, ok := r.Relative(name)
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

// Synced records a sync of a file, or of a directory if dir is not empty.
func (r *Recorder) Synced(file int, dir string, sync func() error) error {
	if file < 0 && dir == "" {
		return sync()
	}
	begin := r.Note(Op{Kind: Begin, File: file, Name: dir})
	if err := sync(); err != nil {
		return err
	}
	r.Note(Op{Kind: End, Off: begin})
	return nil
}

// Wrote records a write.
func (r *Recorder) Wrote(file int, p []byte, off int64) {
	if file >= 0 {
		r.Note(Op{Kind: Write, File: file, Off: off, Data: bytes.Clone(p)})
	}
}

// Dir returns the name of a directory for [Recorder.Synced], "" outside of the
// recorder's.
func (r *Recorder) Dir(dir string) string {
	rel, err := filepath.Rel(r.dir, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	return rel
}

// Renamed records that a file was renamed.
func (r *Recorder) Renamed(oldname, newname string, rename func() error) error {
	from, _ := r.Relative(oldname)
	to, _ := r.Relative(newname)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := rename(); err != nil {
		return err
	}
	r.names[to] = r.names[from]
	r.trace.Files[r.names[to]] = to
	delete(r.names, from)
	r.noteLocked(Op{Kind: Rename, Name: from, To: to})
	return nil
}
