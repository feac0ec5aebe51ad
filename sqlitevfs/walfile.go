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
// its header. Frames of other connections and processes may lie between: what
// they have synced, if anything, is not known here.
type walFile struct {
	db     *database
	path   string
	low    int64    // where the writes since the last sync begin; 0: there are none
	high   int64    // where they end
	commit [2]int64 // where the last two frames begin that end a transaction, the last one first; 0: none
	header bool     // the WAL's header was written
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

// log returns the WAL as the log has it, nil before a commit has needed that, and
// when the log has failed. An error means that the WAL could not be synced then.
func (w *walFile) log() (*grouplog.WAL, error) {
	wal := w.db.commits.attached()
	if wal != nil && wal.LogFailed() {
		return nil, w.db.commits.leave(w.db)
	}
	return wal, nil
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
	w.high = max(w.high, off+int64(len(p)))
	if len(p) == frameHeaderSize && binary.BigEndian.Uint32(p[4:]) != 0 && off > w.commit[0] {
		w.commit = [2]int64{off, w.commit[0]}
	}
}

func (w *walFile) forget() { w.low, w.high, w.commit, w.header = 0, 0, [2]int64{}, false }

// written returns the WAL's header, and up to where frames that end a
// transaction were written whole: without powersafe overwrite SQLite writes the
// last frame several times, up to the end of a sector, and syncs in the middle of
// one. ok is false if that cannot be told.
//
// With synchronous=NORMAL the sync that begins a checkpoint looks like that of a
// commit, and the caller does not hold SQLite's write lock. Its commits stay what
// they are until the WAL is begun anew, which its salts tell.
func (w *walFile) written(read func(p []byte, off int64) (int, error)) (h grouplog.Header, end int64, ok bool) {
	if !w.header && w.commit[0] == 0 {
		return h, 0, false
	}
	if n, _ := read(w.head[:], 0); n < len(w.head) {
		return h, 0, false
	}
	h, err := grouplog.ParseHeader(w.head[:])
	if err != nil {
		return h, 0, false
	}
	if w.commit[0] == 0 {
		return h, walHeaderSize, true
	}
	frame := frameHeaderSize + int64(h.PageSize)
	for _, off := range w.commit {
		if off != 0 && off+frame <= w.high {
			return h, off + frame, true
		}
	}
	return h, 0, false
}

// synced is called when the WAL was synced as without a log. If that was for a
// commit, the next one should find a log.
func (w *walFile) synced(read func(p []byte, off int64) (int, error)) error {
	defer w.forget()
	h, end, ok := w.written(read)
	if !ok || w.header || w.commit[0] == 0 {
		return nil
	}
	return w.db.commits.attach(w.db, w.path, h, end)
}

// sync makes durable what was written: a commit by the log, everything else by
// syncing the WAL. The record of a commit begins where what is durable ends: with
// frames that others have written and not synced, and with what a rolled-back
// transaction has left, which is harmless. read is the file's ReadAt.
func (w *walFile) sync(wal *grouplog.WAL, read func(p []byte, off int64) (int, error)) error {
	defer w.forget()
	h, end, ok := w.written(read)
	if !ok {
		return wal.Sync()
	}
	if start := wal.Rest(h); !w.header && start != 0 && start <= w.low && start < end {
		defer wal.Leave()
		if wal.Enter(end - start) {
			if int64(cap(w.buf)) < end-start {
				w.buf = make([]byte, end-start)
			}
			p := w.buf[:end-start]
			if n, _ := read(p, start); n == len(p) {
				logged, err := wal.Commit(w.head[:], start, p)
				if logged {
					w.db.logged.Add(1)
				}
				return err
			}
		}
	}
	if err := wal.Sync(); err != nil {
		return err
	}
	wal.Learn(h, end)
	return nil
}

func (w *walFile) close() error { return w.db.commits.closed() }
