// SPDX-License-Identifier: MIT

package fileserver

import (
	"mime"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

const (
	// keepFiles is how many files are kept open, and keepFor how long. A name that resolves to another
	// file, for example through a renamed directory, is noticed after keepFor at the latest. A file that
	// is changed, removed, or replaced is noticed at once, because each request checks the open file.
	keepFiles = 256
	keepFor   = time.Second
)

// fileCache keeps recently requested files open.
type fileCache struct {
	mu      sync.Mutex
	files   map[string]*opened
	sweeper *time.Timer
	closed  bool
}

// fileState identifies the content of a file, and changes when its name is removed. A
// file may be replaced by one of the same size and time of modification; its inode
// or its time of change differs.
type fileState struct {
	mtime, ctime, size int64
	ino, dev           uint64
	nlink              uint32
}

// get returns a file that is open and unchanged, nil if there is none.
func (c *fileCache) get(name string) *opened {
	c.mu.Lock()
	o := c.files[name]
	if o != nil {
		o.used++
	}
	c.mu.Unlock()
	if o == nil {
		return nil
	}
	if now, ok := stateOf(o.file); ok && now == o.state {
		return o
	}
	c.mu.Lock()
	c.drop(name, o)
	c.mu.Unlock()
	c.giveBack(o)
	return nil
}

// put keeps a file that was opened for the caller, which must close it.
func (c *fileCache) put(name string, o *opened) {
	if !keepsOpen || o.state == (fileState{}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.files[name] != nil || len(c.files) >= keepFiles {
		return
	}
	o.cache, o.used = c, 1
	if c.files == nil {
		c.files = map[string]*opened{}
	}
	c.files[name] = o
	if len(c.files) == 1 {
		c.sweeper = time.AfterFunc(keepFor, c.sweep)
	}
}

// sweep closes all files: a request that needs one opens it again.
func (c *fileCache) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, o := range c.files {
		c.drop(name, o)
	}
}

// drop forgets a file. It is closed when no request uses it.
func (c *fileCache) drop(name string, o *opened) {
	if o.dropped {
		return
	}
	o.dropped = true
	delete(c.files, name)
	if len(c.files) == 0 {
		c.sweeper.Stop()
	}
	if o.used == 0 {
		o.file.Close()
	}
}

func (c *fileCache) giveBack(o *opened) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.used--; o.used == 0 && o.dropped {
		o.file.Close()
	}
}

// close closes all unused files at once, the others later.
func (c *fileCache) close() {
	c.sweep()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
}

// opened is an open regular file or directory with its header fields.
type opened struct {
	file  *ufile.File
	dir   bool
	size  int64
	mtime time.Time
	etag  []string
	ctype []string // nil if the name does not determine it
	zips  bool     // compressing it may pay

	state fileState  // zero if the system does not provide it
	cache *fileCache // nil if it belongs to one request
	// The cache's lock guards these.
	used    int
	dropped bool
}

// open opens a regular file or a directory. It does not block on a named pipe. The caller must close
// the result.
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

// tag returns the entity tag of a file's state. It includes the inode and the time of the last change
// where the system provides them: a file may be replaced by another one with the same size and
// modification time.
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

// close ends the caller's use of the file.
func (o *opened) close() {
	if o.cache == nil {
		o.file.Close()
		return
	}
	o.cache.giveBack(o)
}
