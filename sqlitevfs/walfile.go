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
)

// walFile watches what one connection writes to a WAL, to tell the sync that
// ends a commit from others: it follows a frame with the size of the database in
// its header.
type walFile struct {
	db     *database
	path   string
	tried  bool  // to attach the WAL to a log
	low    int64 // where the frames written since the last sync begin; 0: none
	commit int64 // where the last frame that ends a transaction begins; 0: none
	header bool  // the WAL's header was written: it has to be synced for itself
	head   [walHeaderSize]byte
	buf    []byte
}

// newWALFile watches a file of a WAL, if its database wants a log.
func newWALFile(db *database, path string) *walFile {
	if db == nil || !db.commits.opened() {
		return nil
	}
	return &walFile{db: db, path: path}
}

// log returns the WAL as the log has it, nil before a commit has needed that.
func (w *walFile) log() *grouplog.WAL { return w.db.commits.attached() }

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

// synced is called when the WAL was synced as without a log. If that was for a
// commit, the next one should find a log.
func (w *walFile) synced() error {
	defer w.forget()
	if w.header || w.commit == 0 || w.tried {
		return nil
	}
	w.tried = true
	return w.db.commits.attach(w.db, w.path)
}

// sync makes durable what was written: a commit by the log, everything else by
// syncing the WAL. What a rolled-back transaction left before the commit goes
// into the log too, which is harmless. read is the file's ReadAt.
func (w *walFile) sync(wal *grouplog.WAL, read func(p []byte, off int64) (int, error)) error {
	defer w.forget()
	if w.header || w.commit == 0 {
		return wal.Sync()
	}
	if n, _ := read(w.head[:], 0); n < len(w.head) {
		return wal.Sync()
	}
	h, err := grouplog.ParseHeader(w.head[:])
	if err != nil {
		return wal.Sync()
	}
	size := w.commit + frameHeaderSize + int64(h.PageSize) - w.low
	defer wal.Leave()
	if !wal.Enter(size) {
		return wal.Sync()
	}
	if int64(cap(w.buf)) < size {
		w.buf = make([]byte, size)
	}
	p := w.buf[:size]
	if n, _ := read(p, w.low); int64(n) < size {
		return wal.Sync()
	}
	w.db.logged.Add(1)
	return wal.Commit(w.head[:], w.low, p)
}

func (w *walFile) close() error { return w.db.commits.closed() }
