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

// walFile records what one connection writes to a WAL, in order to recognise the sync
// that ends a commit: it follows a frame whose header contains the size of the
// database. Frames of other connections and processes may be in between; it does not
// know whether these were synced.
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

// newWALFile returns nil if the database does not use a log.
func newWALFile(db *database, path string) *walFile {
	if db == nil || !db.commits.walOpened() {
		return nil
	}
	return &walFile{db: db, path: path}
}

// log returns the WAL as the log has it, nil before the first commit and after the log
// has failed. An error means that the WAL could not be synced after such a failure.
func (w *walFile) log() (*grouplog.WAL, error) {
	wal := w.db.commits.attached()
	if wal != nil && wal.LogFailed() {
		return nil, w.db.commits.detach(w.db)
	}
	return wal, nil
}

// wrote records a write.
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

// written returns the WAL's header and the end of the last frame that ends a
// transaction and was written completely. Without powersafe overwrite SQLite repeats
// the last frame up to the end of a sector, and syncs in the middle of a repetition.
// ok is false if header or end are not known.
//
// With synchronous=NORMAL the sync at the start of a checkpoint looks like the sync
// of a commit, and the caller does not hold SQLite's write lock. Its committed frames
// do not change until the WAL is restarted, which changes the salts.
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

// synced is called after a sync without a log. If that ended a commit, it attaches the
// WAL to a log for the next one.
func (w *walFile) synced(read func(p []byte, off int64) (int, error)) error {
	defer w.forget()
	h, end, ok := w.written(read)
	if !ok || w.header || w.commit[0] == 0 {
		return nil
	}
	return w.db.commits.attach(w.db, w.path, h, end)
}

// sync makes a commit durable by the log, and everything else by syncing the WAL. The
// record of a commit begins where the durable part of the WAL ends. It may contain
// frames that other connections wrote without a sync, and frames that a rolled-back
// transaction left, which are harmless. read is the file's ReadAt.
func (w *walFile) sync(wal *grouplog.WAL, read func(p []byte, off int64) (int, error)) error {
	defer w.forget()
	h, end, ok := w.written(read)
	if !ok {
		return wal.Sync()
	}
	if start := wal.DurableEnd(h); !w.header && start != 0 && start <= w.low && start < end {
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
	wal.SyncedTo(h, end)
	return nil
}

func (w *walFile) close() error { return w.db.commits.walClosed() }
