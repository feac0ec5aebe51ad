// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/binary"

	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// The parts of a WAL, https://www.sqlite.org/fileformat2.html#walformat
const (
	walHeaderSize   = 32
	frameHeaderSize = 24
	maxLogged       = 256 << 10 // commits beyond it sync their WAL
)

// walFile watches what one connection writes to a WAL, to tell the sync that
// ends a commit from others: it follows a frame with the size of the database in
// its header.
type walFile struct {
	db     *database
	wal    *grouplog.WAL
	low    int64 // where the frames written since the last sync begin; 0: none
	commit int64 // where the last frame that ends a transaction begins; 0: none
	header bool  // the WAL's header was written: it has to be synced for itself
	head   [walHeaderSize]byte
	buf    []byte
}

// newWALFile watches a file of a WAL, if its database has a log.
func newWALFile(db *database, path string) *walFile {
	if db == nil || !db.commits.attach(path) {
		return nil
	}
	return &walFile{db: db, wal: db.commits.attached()}
}

// wrote is told about each write.
func (w *walFile) wrote(p []byte, off int64) {
	if off < walHeaderSize {
		w.forget()
		w.header = true
		return
	}
	if w.low == 0 || off < w.low {
		w.low = off
	}
	if len(p) == frameHeaderSize && binary.BigEndian.Uint32(p[4:]) != 0 && off > w.commit {
		w.commit = off
	}
}

func (w *walFile) forget() { w.low, w.commit, w.header = 0, 0, false }

// sync makes durable what was written: a commit by the log, everything else by
// syncing the WAL. What a rolled-back transaction left before the commit goes
// into the log too, which is harmless. read is the file's ReadAt.
func (w *walFile) sync(read func(p []byte, off int64) (int, error)) error {
	defer w.forget()
	if w.header || w.commit == 0 {
		return w.wal.Sync()
	}
	if n, _ := read(w.head[:], 0); n < len(w.head) {
		return w.wal.Sync()
	}
	h, err := grouplog.ParseHeader(w.head[:])
	size := w.commit + frameHeaderSize + int64(h.PageSize) - w.low
	if err != nil || size > maxLogged {
		return w.wal.Sync()
	}
	if int64(cap(w.buf)) < size {
		w.buf = make([]byte, size)
	}
	p := w.buf[:size]
	if n, _ := read(p, w.low); int64(n) < size {
		return w.wal.Sync()
	}
	w.db.logged.Add(1)
	return w.wal.Commit(w.head[:], w.low, p)
}

func (w *walFile) close() error { return w.db.commits.detach() }
