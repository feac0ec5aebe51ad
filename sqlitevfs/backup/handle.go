// SPDX-License-Identifier: MIT

package backup

import (
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/sqlitevfs"
)

// handle is the Observed of an open database. It outlives a Backup, because sqlitevfs asks once for each database: the next
// Backup takes it over.
type handle struct {
	path    string
	writing atomic.Bool // a transaction of a rollback mode has begun
	to      atomic.Pointer[database]
}

// handles are those of the databases that are open.
var handles struct {
	mu   sync.Mutex
	open map[*handle]bool
}

// observe is the Observer.
func (b *Backup) observe(path string) sqlitevfs.Observed {
	h := &handle{path: path}
	handles.mu.Lock()
	defer handles.mu.Unlock()
	if handles.open == nil {
		handles.open = make(map[*handle]bool)
	}
	handles.open[h] = true
	b.attach(h)
	return h
}

// attach lets a Backup have what a handle is told, if the database is its. The caller holds the mutex of handles.
func (b *Backup) attach(h *handle) {
	if h.to.Load() != nil {
		return
	}
	if d := b.database(h.path); d != nil {
		if d.writing.Store(false); h.writing.Load() {
			d.beginWrite()
		}
		h.to.Store(d)
	}
}

// attachOpen takes over the databases that are open since an earlier Backup.
func (b *Backup) attachOpen() {
	handles.mu.Lock()
	defer handles.mu.Unlock()
	for h := range handles.open {
		b.attach(h)
	}
}

// detach ends what attach has begun.
func (b *Backup) detach() {
	handles.mu.Lock()
	defer handles.mu.Unlock()
	for h := range handles.open {
		if d := h.to.Load(); d != nil && d.b == b {
			h.to.Store(nil)
		}
	}
}

// Changing implements sqlitevfs.Observed.
func (h *handle) Changing(checkpoint bool) {
	if !checkpoint {
		h.writing.Store(true)
	}
	if d := h.to.Load(); d != nil {
		d.Changing(checkpoint)
	}
}

// Committed implements sqlitevfs.Observed.
func (h *handle) Committed(frame int64) {
	if d := h.to.Load(); d != nil {
		d.Committed(frame)
	}
}

// Restarting implements sqlitevfs.Observed.
func (h *handle) Restarting(removed bool) {
	if d := h.to.Load(); d != nil {
		d.Restarting(removed)
	}
}

// Changed implements sqlitevfs.Observed.
func (h *handle) Changed(written []sqlitevfs.Piece) {
	h.writing.Store(false)
	if d := h.to.Load(); d != nil {
		d.Changed(written)
	}
}

// Closed implements sqlitevfs.Observed.
func (h *handle) Closed() {
	handles.mu.Lock()
	defer handles.mu.Unlock()
	delete(handles.open, h)
	if d := h.to.Load(); d != nil {
		d.Closed()
	}
}
