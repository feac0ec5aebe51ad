// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/binary"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// walFile records the writes of one connection to a WAL, in order to recognise the sync that
// ends a commit. That sync follows a frame whose header contains the size of the database.
// Frames of other connections and processes may be in between; walFile does not know whether
// those were synced.
type walFile struct {
	db     *database
	base   vfs.File // the file below
	path   string
	id     disk.ID  // zero if it is not known
	low    int64    // where the writes since the last sync begin; 0: there are none
	high   int64    // where they end
	ends   [2]int64 // offsets of the last two frames that end a transaction, the last one first; 0: none
	header bool     // the WAL's header was written
	salt   [8]byte  // of the last commit
	head   [walHeaderSize]byte
	life   grouplog.Header // the parsed head; zero if it is not known
	frames *frameWriter
	buf    []byte

	syncData func() error // makes the file durable without the log; nil: the log's own way
}

// newWALFile returns nil if the database does not use a log.
func newWALFile(f *file, syncData func() error) *walFile {
	if f.db == nil || !f.db.commits.walOpened() {
		return nil
	}
	return &walFile{db: f.db, base: f.File, path: f.name, id: fileID(f.fd), frames: f.frames, syncData: syncData}
}

// handle returns the WAL's handle in the log. It is nil before the first commit, after the log has
// failed, and if the log has another file of that name. An error means that the WAL could not be
// synced after such a failure.
func (w *walFile) handle() (*grouplog.WAL, error) {
	handle := w.db.commits.attached()
	switch {
	case handle == nil || !sameFile(w.id, handle):
		return nil, nil
	case handle.LogFailed():
		return nil, w.db.commits.detach(w.db)
	}
	return handle, nil
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
	if len(p) == frameHeaderSize && binary.BigEndian.Uint32(p[4:]) != 0 && off > w.ends[0] {
		w.ends = [2]int64{off, w.ends[0]}
		w.salt = [8]byte(p[8:])
	}
}

// truncated records that the file is truncated.
func (w *walFile) truncated(size int64) {
	w.forget(false)
	if handle := w.db.commits.attached(); handle != nil {
		handle.Truncated(size)
	}
}

// forget begins a new list of writes. The frames of the next commit are kept if the last
// commit went to the log.
func (w *walFile) forget(logged bool) {
	w.low, w.high, w.ends, w.header = 0, 0, [2]int64{}, false
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
func (w *walFile) written() (h grouplog.Header, end int64, ok bool) {
	if !w.header && w.ends[0] == 0 {
		return h, 0, false
	}
	if w.header || w.ends[0] == 0 || w.life.Salt != w.salt {
		w.life = grouplog.Header{}
		if n, _ := w.base.ReadAt(w.head[:], 0); n < len(w.head) {
			return h, 0, false
		}
		if h, err := grouplog.ParseHeader(w.head[:]); err == nil {
			w.life = h
		} else {
			return h, 0, false
		}
	}
	h = w.life
	if w.ends[0] == 0 {
		return h, walHeaderSize, true
	}
	frame := frameHeaderSize + int64(h.PageSize)
	for _, off := range w.ends {
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
func (w *walFile) synced() error {
	defer w.forget(false)
	h, end, ok := w.written()
	if !ok || w.header || w.ends[0] == 0 || w.frames.ends > maxEnds {
		return nil
	}
	return w.db.commits.attach(w, h, end)
}

// commit makes a commit durable by the log, and everything else by syncing the WAL. The
// record of a commit begins where the durable part of the WAL ends. It may contain frames
// that other connections wrote without a sync, and frames of a rolled-back transaction. Both
// are harmless. logged reports that the log has it.
func (w *walFile) commit(handle *grouplog.WAL) (logged bool, err error) {
	logged, err = w.logOrSync(handle)
	w.forget(logged)
	if logged {
		w.db.logged.Add(1)
	}
	return logged, err
}

// logOrSync puts the frames that are not durable into the log if they continue durable ones and the
// log is chosen, and syncs the WAL otherwise. logged reports whether the log has them.
func (w *walFile) logOrSync(handle *grouplog.WAL) (logged bool, err error) {
	h, end, ok := w.written()
	if !ok {
		return false, handle.SyncBy(w.syncData)
	}
	start := handle.DurableEnd(h)
	follows := !w.header && start != 0 && start <= w.low && start < end
	if !follows {
		start = w.low
	}
	turn := handle.Enter(start, end)
	defer handle.Leave()
	if turn.Log && follows {
		// Commit checks the chain of checksums. It detects frames that another
		// connection wrote in the place of kept frames.
		if p := w.frames.kept(start, end); p != nil {
			return handle.Commit(w.head[:], start, p)
		}
		if int64(cap(w.buf)) < end-start {
			w.buf = make([]byte, end-start)
		}
		p := w.buf[:end-start]
		if n, _ := w.base.ReadAt(p, start); n == len(p) {
			return handle.Commit(w.head[:], start, p)
		}
	}
	if err := handle.SyncBy(w.syncData); err != nil {
		return false, err
	}
	if !turn.Next {
		end = 0 // the next commit is a sync too, and need not know the end
	}
	handle.SyncedTo(h, end)
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
