// SPDX-License-Identifier: MIT

package fileserver

import (
	"mime"
	"path"
	"strconv"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

// opened is an open regular file or directory, and what is said of it.
type opened struct {
	file  *ufile.File
	dir   bool
	size  int64
	mtime time.Time
	etag  []string
	ctype []string // nil where the name does not tell
	zips  bool     // compressing it may pay

	state fileState  // zero where the system does not tell
	cache *fileCache // nil if it belongs to one request
	// The cache's lock guards these.
	used    int
	dropped bool
}

// open opens a regular file or a directory. A named pipe is not waited for. What it returns must be
// closed.
func (h *Handler) open(name string) (*opened, error) {
	if o := h.files.get(name); o != nil {
		return o, nil
	}
	f, err := h.root.OpenFile(name, openFlags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = errHidden
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	o := &opened{file: f, dir: info.IsDir(), size: info.Size(), mtime: info.ModTime()}
	if !o.dir {
		if state, ok := stateOf(f); ok && state.size == o.size && state.mtime == o.mtime.UnixNano() {
			o.state = state
		}
		o.describe(name)
		h.files.put(name, o)
	}
	return o, nil
}

// describe fills in the header fields that depend on the file alone.
func (o *opened) describe(name string) {
	o.etag = []string{o.tag("")}
	if ctype := mime.TypeByExtension(path.Ext(name)); ctype != "" {
		o.ctype, o.zips = []string{ctype}, compressible(ctype)
	}
}

// tag is the entity tag of a file's state. Its inode and the time of its last change belong to it
// where the system tells them: a file may be replaced by another of the same size and modification
// time.
func (o *opened) tag(suffix string) string {
	b := append(make([]byte, 0, 96), '"')
	b = strconv.AppendUint(b, uint64(o.mtime.UnixNano()), 16)
	b = append(b, '-')
	b = strconv.AppendInt(b, o.size, 16)
	if o.state != (fileState{}) {
		b = append(b, '-')
		b = strconv.AppendUint(b, o.state.ino, 16)
		b = append(b, '-')
		b = strconv.AppendUint(b, uint64(o.state.ctime), 16)
	}
	b = append(b, suffix...)
	return string(append(b, '"'))
}

// close gives it back.
func (o *opened) close() {
	if o.cache == nil {
		o.file.Close()
		return
	}
	o.cache.giveBack(o)
}
