// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/binary"
	"sync"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// The parts of a WAL, https://www.sqlite.org/fileformat2.html#walformat
const (
	walHeaderSize   = 32
	frameHeaderSize = 24
)

// frameWriter writes the frames of a transaction to a WAL by one call, where SQLite makes two calls
// for each frame. It holds new frames until one ends the transaction, and then reports a failed
// write, so that SQLite does not commit. A frame is new if it lies behind all frames that this
// connection wrote. A header that SQLite writes again, because a transaction changes a page twice,
// is written at once.
//
// Frames must be in the file before another connection may read or write there. SQLite locks and
// changes the WAL's index before that, and calls indexUsed.
type frameWriter struct {
	buf     []byte // frames in their order, from start; from a pool
	start   int64
	done    int   // bytes of buf that are in the file
	headed  bool  // buf ends with a header whose page has not been written
	last    bool  // the newest frame ends a transaction
	cut     bool  // only a part of the newest page was written
	watched bool  // indexUsed was called since the last end of a transaction
	high    int64 // end of the last frame
	single  int64 // offset of a header that was written without its page; 0: none
	failed  error // of the last indexUsed, which dropped frames
	keep    bool  // keep all frames until forget is called, as far as they are contiguous
	ends    int   // new frames that end a transaction since the last sync
	ended   bool  // a frame that ends a transaction was written, and indexUsed was not called since
	commit  int64 // offset of that frame, until the observer was told; 0: none
}

// maxFrames is how many bytes of frames are held or kept, and one frame more.
const maxFrames = 256 << 10

// framePool has the buffers of connections that hold no frames. Most connections are idle.
var framePool sync.Pool

func (w *frameWriter) end() int64 { return w.start + int64(len(w.buf)) }

// writeAt writes to a WAL instead of f.WriteAt.
func (w *frameWriter) writeAt(f vfs.File, p []byte, off int64) (n int, err error) {
	if len(p) == frameHeaderSize && off >= walHeaderSize && binary.BigEndian.Uint32(p[4:]) != 0 {
		w.ended, w.commit = true, off
	}
	switch {
	case w.failed != nil:
		return 0, w.failed
	case w.headed && off == w.end():
		n, err = w.addPage(f, p, off)
	case !w.headed && !w.cut && len(p) == frameHeaderSize && off >= max(w.high, walHeaderSize):
		n, err = w.addHeader(f, p, off)
	default:
		n, err = w.overwrite(f, p, off)
	}
	if err != nil {
		w.drop() // SQLite rolls the transaction back
	}
	return n, err
}

// addPage adds the page of the newest header. Without powersafe overwrite SQLite writes the last page in two
// parts, with a sync in between. A part is no power of two if the other one has the size of a header.
func (w *frameWriter) addPage(f vfs.File, p []byte, off int64) (int, error) {
	w.buf = append(w.buf, p...)
	w.headed, w.cut, w.high = false, len(p)&(len(p)-1) != 0, max(w.high, w.end())
	frame := (off-walHeaderSize)/int64(frameHeaderSize+len(p)) + 1
	if !w.last && w.watched && len(w.buf)-w.done < maxFrames && frame <= firstIndexPage {
		return len(p), nil
	}
	if w.last {
		w.watched = false
	}
	if err := w.flush(f); err != nil {
		return 0, err
	}
	return len(p), nil
}

// addHeader begins a new frame.
func (w *frameWriter) addHeader(f vfs.File, p []byte, off int64) (int, error) {
	if off != w.end() || len(w.buf) > maxFrames {
		if err := w.flush(f); err != nil {
			return 0, err
		}
		w.drop()
		w.start = off
	}
	if w.buf == nil {
		if b, ok := framePool.Get().(*[]byte); ok {
			w.buf = *b
		}
	}
	w.buf, w.headed = append(w.buf, p...), true
	if w.last = binary.BigEndian.Uint32(p[4:]) != 0; w.last {
		w.ends++
	}
	return len(p), nil
}

// overwrite makes any other write at once, and changes the frames of the buffer in the same way.
func (w *frameWriter) overwrite(f vfs.File, p []byte, off int64) (int, error) {
	if err := w.flush(f); err != nil {
		return 0, err
	}
	w.cut = false
	switch {
	case off >= w.start && off+int64(len(p)) <= w.end():
		copy(w.buf[off-w.start:], p)
	case off < w.end() && off+int64(len(p)) > w.start:
		w.drop()
	}
	if w.single != 0 && off == w.single+frameHeaderSize {
		w.high = off + int64(len(p)) // a frame, so the WAL was restarted or a transaction rolled back
	}
	if w.single = 0; len(p) == frameHeaderSize {
		w.single = off
	}
	return f.WriteAt(p, off)
}

// firstIndexPage is how many frames the first page of the WAL's index has,
// https://www.sqlite.org/walformat.html. SQLite maps it before it writes frames. Others it may map in the
// middle of a transaction, so later frames are not held: a failure of indexUsed is not reported.
const firstIndexPage = 4062

// holds reports whether a part of a range of the WAL is held.
func (w *frameWriter) holds(off int64, size int) bool {
	return w != nil && w.done < len(w.buf) && off < w.end() && off+int64(size) > w.start+int64(w.done)
}

// flush writes the held frames. It is called before any other operation on the file, except reads
// elsewhere. If it fails, the frames stay held: SQLite does not roll back after each failed read. It does
// nothing if w is nil.
func (w *frameWriter) flush(f vfs.File) error {
	if w == nil || w.done == len(w.buf) {
		return nil
	}
	if _, err := f.WriteAt(w.buf[w.done:], w.start+int64(w.done)); err != nil {
		return err
	}
	if w.done = len(w.buf); w.headed {
		w.single = w.end() - frameHeaderSize
	}
	if w.headed || !w.keep {
		w.drop()
	}
	return nil
}

// indexUsed is called before SQLite locks or changes the WAL's index. Frames that are held then belong
// to a transaction that was rolled back, so SQLite does not read them. If they cannot be written, all writes are
// refused until the next call, which comes before the next transaction.
func (w *frameWriter) indexUsed(f vfs.File) {
	w.watched, w.ended = true, false
	if w.failed = w.flush(f); w.failed != nil {
		w.drop()
	}
}

// kept returns the bytes of a range of the WAL, or nil if not all were kept and written.
func (w *frameWriter) kept(start, end int64) []byte {
	if !w.keep || start < w.start || end > w.start+int64(w.done) {
		return nil
	}
	return w.buf[start-w.start : end-w.start]
}

// forget drops the kept frames. keep sets whether later writes are kept.
func (w *frameWriter) forget(keep bool) {
	w.drop()
	w.keep = keep
}

// drop forgets the frames of the buffer, and returns it to the pool.
func (w *frameWriter) drop() {
	w.start, w.done, w.headed = w.end(), 0, false
	if cap(w.buf) > 0 {
		b := w.buf[:0]
		framePool.Put(&b)
	}
	w.buf = nil
}

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

// commitOrSync puts the frames that are not durable into the log if they continue durable ones and the
// log is chosen, and syncs the WAL otherwise. logged reports whether the log has them.
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

// identity returns the identity of the file, zero if it is not known. w may be nil.
func (w *walFile) identity() disk.ID {
	if w == nil {
		return disk.ID{}
	}
	return w.id
}

func (w *walFile) close() error { return w.db.commits.walClosed() }
