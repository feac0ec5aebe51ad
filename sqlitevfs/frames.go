// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/binary"
	"sync"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/walformat"
)

const (
	walHeaderSize   = walformat.HeaderSize
	frameHeaderSize = walformat.FrameHeaderSize
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
	commit  int64 // offset of that frame, until the observer was told, or it was rolled back; 0: none
	fresh   bool  // the WAL was made under the connection's lock against all others, and has no frames
	clean   bool  // the WAL was synced under that lock, and not written since
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
	w.clean, w.fresh = false, w.fresh && off < walHeaderSize
	switch {
	case w.failed != nil:
		err = w.failed
	case w.headed && off == w.end():
		n, err = w.addPage(f, p, off)
	case !w.headed && !w.cut && len(p) == frameHeaderSize && off >= max(w.high, walHeaderSize):
		n, err = w.addHeader(f, p, off)
	default:
		n, err = w.overwrite(f, p, off)
	}
	if err != nil { // SQLite rolls the transaction back
		w.drop()
		w.commit = 0
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
		w.commit = 0
	}
}

// changed is called when the WAL has changed otherwise, or others may change it.
func (w *frameWriter) changed() { w.fresh, w.clean = false, false }

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
