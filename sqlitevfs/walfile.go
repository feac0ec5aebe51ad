// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/binary"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// The parts of a WAL, https://www.sqlite.org/fileformat2.html#walformat
const (
	walHeaderSize   = 32
	frameHeaderSize = 24
)

// frameWriter writes a WAL frame by one call. SQLite writes the header and the page of a frame
// by two calls, so the header is deferred until the page is written. A header that SQLite
// writes again, because a transaction changes a page twice, is not deferred: no page follows
// it. A header is treated as new if it lies behind all frames that this connection wrote.
type frameWriter struct {
	buf    []byte // as written, from start; ends with the deferred header if there is one
	start  int64
	held   bool  // a header is deferred
	high   int64 // end of the last frame
	single int64 // offset of a header that was written without its page; 0: none
	keep   bool  // keep all frames until forget is called, as far as they are contiguous
	ends   int   // new frames that end a transaction since the last sync
}

// maxKept is how many bytes of frames are kept.
const maxKept = 256 << 10

func (w *frameWriter) end() int64 { return w.start + int64(len(w.buf)) }

// writeAt writes to a WAL instead of f.WriteAt.
func (w *frameWriter) writeAt(f vfs.File, p []byte, off int64) (int, error) {
	if w.held && off == w.end() {
		w.held = false
		frame := len(w.buf) - frameHeaderSize
		w.buf = append(w.buf, p...)
		n, err := f.WriteAt(w.buf[frame:], off-frameHeaderSize)
		if err != nil {
			w.buf = w.buf[:0]
		}
		w.high = max(w.high, off+int64(len(p)))
		return max(n-frameHeaderSize, 0), err
	}
	if err := w.flush(f); err != nil {
		return 0, err
	}
	if len(p) == frameHeaderSize && off >= max(w.high, walHeaderSize) {
		if !w.keep || off != w.end() || len(w.buf) > maxKept {
			w.buf, w.start = w.buf[:0], off
		}
		w.buf, w.held = append(w.buf, p...), true
		if binary.BigEndian.Uint32(p[4:]) != 0 {
			w.ends++
		}
		return len(p), nil
	}
	switch {
	case off >= w.start && off+int64(len(p)) <= w.end():
		copy(w.buf[off-w.start:], p)
	case off < w.end() && off+int64(len(p)) > w.start:
		w.buf = w.buf[:0]
	}
	if w.single != 0 && off == w.single+frameHeaderSize {
		w.high = off + int64(len(p)) // a frame, so the WAL was restarted or a transaction rolled back
	}
	if w.single = 0; len(p) == frameHeaderSize {
		w.single = off
	}
	n, err := f.WriteAt(p, off)
	if err != nil {
		w.buf = w.buf[:0]
	}
	return n, err
}

// flush writes the deferred header. It is called before any other operation on the file. It
// does nothing if w is nil.
func (w *frameWriter) flush(f vfs.File) error {
	if w == nil || !w.held {
		return nil
	}
	w.held = false
	head := w.buf[len(w.buf)-frameHeaderSize:]
	w.single = w.end() - frameHeaderSize
	_, err := f.WriteAt(head, w.single)
	w.buf = w.buf[:0]
	return err
}

// kept returns the bytes of a range of the WAL, or nil if not all were kept and written.
func (w *frameWriter) kept(start, end int64) []byte {
	if !w.keep || w.held || start < w.start || end > w.end() {
		return nil
	}
	return w.buf[start-w.start : end-w.start]
}

// forget drops the kept frames. keep sets whether later writes are kept.
func (w *frameWriter) forget(keep bool) { w.buf, w.keep = w.buf[:0], keep }

// walFile records the writes of one connection to a WAL, in order to recognise the sync that
// ends a commit. That sync follows a frame whose header contains the size of the database.
// Frames of other connections and processes may be in between; walFile does not know whether
// those were synced.
type walFile struct {
	db     *database
	path   string
	id     disk.ID  // zero if it is not known
	low    int64    // where the writes since the last sync begin; 0: there are none
	high   int64    // where they end
	commit [2]int64 // offsets of the last two frames that end a transaction, the last one first; 0: none
	header bool     // the WAL's header was written
	salt   [8]byte  // of the last commit
	head   [walHeaderSize]byte
	life   grouplog.Header // the parsed head; zero if it is not known
	frames *frameWriter
	buf    []byte
}

// newWALFile returns nil if the database does not use a log.
func newWALFile(db *database, path string, fd int, frames *frameWriter) *walFile {
	if db == nil || !db.commits.walOpened() {
		return nil
	}
	return &walFile{db: db, path: path, id: fileID(fd), frames: frames}
}

// log returns the WAL's handle in the log, nil before the first commit, after the log has
// failed, and if the log has another file of that name. An error means that the WAL could not be synced after such a failure.
func (w *walFile) log() (*grouplog.WAL, error) {
	wal := w.db.commits.attached()
	switch {
	case wal == nil || !sameFile(w.id, wal):
		return nil, nil
	case wal.LogFailed():
		return nil, w.db.commits.detach(w.db)
	}
	return wal, nil
}

// wrote records a write.
func (w *walFile) wrote(p []byte, off int64) {
	if off < walHeaderSize {
		w.forget(w.frames.keep)
		w.header = true
		return
	}
	if w.low == 0 || off < w.low {
		w.low = off
	}
	w.high = max(w.high, off+int64(len(p)))
	if len(p) == frameHeaderSize && binary.BigEndian.Uint32(p[4:]) != 0 && off > w.commit[0] {
		w.commit = [2]int64{off, w.commit[0]}
		w.salt = [8]byte(p[8:])
	}
}

// forget begins a new list of writes. The frames of the next commit are kept if the last
// commit went to the log.
func (w *walFile) forget(logged bool) {
	w.low, w.high, w.commit, w.header = 0, 0, [2]int64{}, false
	w.frames.forget(logged)
}

// written returns the WAL's header and the end of the last frame that ends a
// transaction and was written completely. Without powersafe overwrite SQLite repeats
// the last frame up to the end of a sector, and syncs in the middle of a repetition.
// ok is false if the header or the end is not known.
//
// With synchronous=NORMAL the sync at the start of a checkpoint looks like the sync of a
// commit, and the caller does not hold SQLite's write lock. The committed frames do not change
// until the WAL is restarted, which changes the salts.
func (w *walFile) written(read func(p []byte, off int64) (int, error)) (h grouplog.Header, end int64, ok bool) {
	if !w.header && w.commit[0] == 0 {
		return h, 0, false
	}
	if w.header || w.commit[0] == 0 || w.life.Salt != w.salt {
		w.life = grouplog.Header{}
		if n, _ := read(w.head[:], 0); n < len(w.head) {
			return h, 0, false
		}
		if h, err := grouplog.ParseHeader(w.head[:]); err == nil {
			w.life = h
		} else {
			return h, 0, false
		}
	}
	h = w.life
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

// maxEnds is how many frames that end a transaction a connection may write before a sync that ends a
// commit. Without powersafe overwrite SQLite repeats the last frame up to the end of a sector. More
// frames than that are the commits of a connection with synchronous=NORMAL.
const maxEnds = 16

// synced is called after a sync without a log. If the sync ended a commit, synced attaches
// the WAL to a log for the next commit. A connection that syncs only for checkpoints does not need a log.
func (w *walFile) synced(read func(p []byte, off int64) (int, error)) error {
	defer w.forget(false)
	h, end, ok := w.written(read)
	if !ok || w.header || w.commit[0] == 0 || w.frames.ends > maxEnds {
		return nil
	}
	return w.db.commits.attach(w, h, end)
}

// sync makes a commit durable by the log, and everything else by syncing the WAL. The
// record of a commit begins where the durable part of the WAL ends. It may contain frames
// that other connections wrote without a sync, and frames of a rolled-back transaction. Both
// are harmless. read is the file's ReadAt; the argument sync syncs the file without the log.
func (w *walFile) sync(wal *grouplog.WAL, read func(p []byte, off int64) (int, error), sync func() error) error {
	logged, err := w.commitOrSync(wal, read, sync)
	w.forget(logged)
	if logged {
		w.db.logged.Add(1)
	}
	return err
}

func (w *walFile) commitOrSync(wal *grouplog.WAL, read func(p []byte, off int64) (int, error), sync func() error) (logged bool, err error) {
	h, end, ok := w.written(read)
	if !ok {
		return false, wal.SyncBy(sync)
	}
	if start := wal.DurableEnd(h); !w.header && start != 0 && start <= w.low && start < end {
		turn := wal.Enter(end - start)
		defer func() { wal.Leave(turn) }()
		if turn.Log {
			// Commit checks the chain of checksums. It detects frames that another
			// connection wrote in the place of kept frames.
			if p := w.frames.kept(start, end); p != nil {
				return wal.Commit(w.head[:], start, p)
			}
			if int64(cap(w.buf)) < end-start {
				w.buf = make([]byte, end-start)
			}
			p := w.buf[:end-start]
			if n, _ := read(p, start); n == len(p) {
				return wal.Commit(w.head[:], start, p)
			}
		}
	}
	if err := wal.SyncBy(sync); err != nil {
		return false, err
	}
	wal.SyncedTo(h, end)
	return false, nil
}

func (w *walFile) close() error { return w.db.commits.walClosed() }
