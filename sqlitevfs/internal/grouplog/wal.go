// SPDX-License-Identifier: MIT

package grouplog

import (
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// claimByte is the locked byte of an attached WAL. It is far after any frame, and SQLite does not
// lock it.
const claimByte = 1 << 62

// WAL is a write-ahead log file whose commits go through a [Log]. Its methods
// may be called concurrently.
type WAL struct {
	log   *Log
	path  string // in records
	owner uint32 // its hash
	file  disk.File
	id    disk.ID
	db    uint64 // mark of the database

	last   atomic.Uint64 // the newest batch with a record of it; under log.mu
	synced atomic.Uint64 // batches up to this one are durable in the file

	durableMu sync.Mutex
	durable   extent // the part that the next record may continue
	size      int64  // of the file when it was synced, as far as it is known

	mu     sync.Mutex // one sync at a time
	failed error
	broken atomic.Bool // failed is set
	closed bool
}

// Attach opens a WAL for commits. The file must exist; it may be empty. Its content and its
// directory entry are durable when Attach returns. A WAL can be attached only once, to one log, and a
// log has one WAL of a name: see [ErrClaimed]. A WAL that could not be synced cannot be attached to this
// log again. Before SQLite removes or replaces the file, the WAL must be closed; then the new
// file can be attached.
func (l *Log) Attach(path string) (*WAL, error) {
	path, err := Canonical(path)
	if err != nil {
		return nil, err
	}
	name := l.relative(path)
	if len(name) > maxPath {
		return nil, &fs.PathError{Op: "attach", Path: path, Err: fs.ErrInvalid}
	}
	if !l.serves(name) {
		return nil, &fs.PathError{Op: "attach", Path: path, Err: ErrElsewhere}
	}
	f, err := l.opts.FS.Open(path, 0, 0)
	if err != nil {
		return nil, err
	}
	w := &WAL{log: l, path: name, owner: owner(name), file: f}
	if err := w.claim(path); err != nil {
		f.Close()
		return nil, err
	}
	if db, ok := database(path); ok {
		if id, err := l.opts.FS.Lookup(db); err == nil {
			w.db = mark(id)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.failed != nil {
		f.Close()
		return nil, l.refusal()
	}
	// The page cache may have what the disk lacks, and a later sync would not show that. The records must
	// not be taken for durable in the WAL.
	if err := l.unsynced[name]; err != nil {
		f.Close()
		return nil, fmt.Errorf("grouplog: a sync of the WAL failed before: %w", err)
	}
	for other := range l.wals {
		if other.path == name { // the log could not tell their records apart
			f.Close()
			return nil, &fs.PathError{Op: "attach", Path: path, Err: ErrClaimed}
		}
	}
	l.wals[w] = struct{}{}
	return w, nil
}

// claim returns an error if another log has commits that the WAL lacks.
func (w *WAL) claim(path string) (err error) {
	if w.id, err = w.file.ID(); err != nil {
		return err
	}
	if ok, err := w.file.TryLock(claimByte, 1); err != nil {
		return err
	} else if !ok {
		return &fs.PathError{Op: "attach", Path: path, Err: ErrClaimed}
	}
	if err := w.log.point(path); err != nil {
		return err
	}
	if err = w.file.Sync(); err == nil {
		err = w.log.opts.FS.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return &SyncError{err}
	}
	w.size, err = w.file.Size()
	return err
}

// SyncError is returned by Attach if the WAL or its directory could not be synced. It is then
// unknown which part of the WAL is durable.
type SyncError struct{ Err error }

func (e *SyncError) Error() string { return e.Err.Error() }
func (e *SyncError) Unwrap() error { return e.Err }

// Turn is the decision of Enter about a commit.
type Turn struct {
	// Log reports that the commit should call Commit. Otherwise the commit gains nothing from the
	// log, and should call Sync.
	Log bool
	// Next reports that the log would take a commit of few frames behind this one, so that SyncedTo needs
	// the end of this one.
	Next bool
}

// Enter is called before making a commit durable whose frames are these bytes of the WAL, and Leave
// afterwards. A commit of at most MaxRecord bytes uses the log if commits are mostly concurrent, and
// where the WAL grows: a sync would then wait for the journal of the file system too. A commit that
// is alone and overwrites frames has the same rate both ways, and takes less processor time by a sync.
func (w *WAL) Enter(start, end int64) Turn {
	l := w.log
	going := l.busy.Add(1)
	// company is the average of about the last 16 commits, in sixteenths. A race may lose one.
	company := l.company.Load()
	company += going - company/16
	l.company.Store(company)
	always := l.opts.Always || company > 24 // more than 1.5 concurrent commits
	w.durableMu.Lock()
	size := w.size
	w.durableMu.Unlock()
	return Turn{
		Log:  (always || end > size) && end-start <= int64(l.maxRecord(w.path)),
		Next: always || end >= size,
	}
}

// Leave ends the commit that Enter began.
func (w *WAL) Leave() { w.log.busy.Add(-1) }

// Truncated is called when the file is truncated to size bytes.
func (w *WAL) Truncated(size int64) {
	w.durableMu.Lock()
	defer w.durableMu.Unlock()
	w.durable, w.size = extent{}, min(size, w.size)
}

// Dirty reports whether commits of the WAL are durable only in the log. Then Sync must succeed
// before the database is written.
func (w *WAL) Dirty() bool { return w.last.Load() > w.synced.Load() }

// LogFailed reports whether the log has failed, so that each commit syncs the WAL.
func (w *WAL) LogFailed() bool { return w.log.Failed() }

// ID returns the identity of the file.
func (w *WAL) ID() disk.ID { return w.id }

// DurableEnd returns the offset in a life of the WAL from which a record must have the frames.
// Those before it are durable, in the file or in the log. It returns 0 if the offset is unknown;
// then only a sync of the WAL makes a commit durable.
func (w *WAL) DurableEnd(h Header) int64 {
	w.durableMu.Lock()
	defer w.durableMu.Unlock()
	if !w.durable.header.same(h) {
		return 0
	}
	return w.durable.end
}

// extent is the durable part of a life of the WAL: the frames up to end, whose checksum is sum. An
// end of 0 means that it is unknown.
type extent struct {
	header Header
	end    int64
	sum    checksum
}

// SyncedTo must be called after the WAL was synced. All frames of this life up to end were written
// before the sync, and end is the end of a transaction. With an end of 0 the next commit cannot use the log.
func (w *WAL) SyncedTo(h Header, end int64) {
	e := w.extentAt(h, end)
	w.durableMu.Lock()
	defer w.durableMu.Unlock()
	w.durable, w.size = e, max(end, w.size)
}

// extentAt reads the checksum of the frames up to end. The last frame may have been synced while it
// was half written: without powersafe overwrite SQLite syncs up to the end of a sector. Then the
// extent ends before that frame.
func (w *WAL) extentAt(h Header, end int64) extent {
	switch {
	case !h.aligned(end):
		return extent{}
	case end == walHeaderSize:
		return extent{h, end, h.sum}
	}
	before := extent{h, end - h.frame(), h.sum}
	p := make([]byte, frameHeaderSize+h.frame())
	if before.end == walHeaderSize {
		p = p[frameHeaderSize:]
		if readFull(w.file, p, before.end) != nil {
			return extent{}
		}
	} else {
		// The checksum of the previous frame is in its header.
		if readFull(w.file, p[:frameHeaderSize], before.end-h.frame()) != nil || readFull(w.file, p[frameHeaderSize:], before.end) != nil {
			return extent{}
		}
		if [8]byte(p[8:16]) != h.Salt {
			return extent{}
		}
		before.sum = sumOf(p)
		p = p[frameHeaderSize:]
	}
	if sum, ok := h.chain(before.sum, p); ok {
		return extent{h, end, sum}
	}
	return before
}

// Commit makes frames in the WAL durable, from off up to the end of a transaction. They are the
// frames that the caller has just written, and those before them that others have written since off
// was durable, see [WAL.DurableEnd]. Header is the first 32 bytes of the WAL. The caller must still
// hold SQLite's write lock, so that the frames do not change. Commit does not use frames and header
// after it returns.
//
// If the log cannot take a commit, a Sync makes it durable. That happens if it is too large, if its
// frames do not continue the durable part, and always when the log has failed or has no room.
// Commit reports whether the log took it. After an error the commit may or may not be durable.
func (w *WAL) Commit(header []byte, off int64, frames []byte) (logged bool, err error) {
	h, err := ParseHeader(header)
	if err != nil {
		return false, w.commitLarge()
	}
	end := off + int64(len(frames))
	next, ok := w.continues(h, off, frames)
	if !ok || w.broken.Load() { // then the sync returns the failure
		return false, w.syncTo(h, end)
	}
	q := w.log.queue.New()
	c := &q.Value
	c.wal, c.frames = w, frames
	r := record{path: w.path, wal: mark(w.id), db: w.db, header: h, off: off, synced: w.synced.Load()}
	c.head = append(c.head[:0], make([]byte, recordHeaderSize+len(w.path))...)
	sum := crc32.Update(r.encodeHeader(c.head, len(frames)), castagnoli, frames)
	le.PutUint32(c.head, sum)
	c.sum = sum
	c.size = recordSize(w.path, len(frames))
	err = w.log.submit(q)
	w.log.forget(q)
	if err != nil {
		return false, w.syncTo(h, end)
	}
	w.durableMu.Lock()
	w.durable = next
	w.durableMu.Unlock()
	return true, nil
}

// continues reports whether frames can be a record: they follow the durable part with an unbroken
// chain of checksums, and end a transaction. It returns the durable part after the record.
func (w *WAL) continues(h Header, off int64, frames []byte) (extent, bool) {
	w.durableMu.Lock()
	rest := w.durable
	w.durableMu.Unlock()
	frame := int(h.frame())
	if rest.end == 0 || off != rest.end || !rest.header.same(h) || len(frames) > w.log.maxRecord(w.path) || !Ends(frames, h.PageSize) {
		return rest, false
	}
	ok := true
	for p := frames; len(p) > 0 && ok; p = p[frame:] {
		rest.sum, ok = h.chain(rest.sum, p[:frame])
	}
	rest.end = off + int64(len(frames))
	return rest, ok
}

// syncTo makes a commit durable by syncing the WAL, which had been written up to end.
func (w *WAL) syncTo(h Header, end int64) error {
	err := w.commitLarge()
	if err == nil {
		w.SyncedTo(h, end)
	}
	return err
}

// maxRecord returns the maximum number of bytes of frames in a record.
func (l *Log) maxRecord(path string) int {
	room := min(int64(maxBatch), l.header.small()) - batchHeaderSize - recordSize(path, 0) - recordAlign
	return int(min(int64(l.opts.MaxRecord), room))
}

// commitLarge makes a commit durable by syncing the WAL.
func (w *WAL) commitLarge() error {
	l := w.log
	l.mu.Lock()
	l.stats.Large++
	l.mu.Unlock()
	return w.Sync()
}

// Sync makes all earlier writes to the WAL durable in the WAL itself. Its records in the log are
// then no longer needed. A failure is final for the WAL, whose records stay in the log; other WALs
// continue.
func (w *WAL) Sync() error { return w.SyncBy(nil) }

// SyncBy is Sync with another function that makes the file durable, which may share its cost with
// other files. Nil means the default.
func (w *WAL) SyncBy(sync func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return &fs.PathError{Op: "sync", Path: w.path, Err: os.ErrClosed}
	}
	return w.sync(sync)
}

// sync syncs the WAL and tells the log which records are not needed any more. A failure is final.
func (w *WAL) sync(sync func() error) error {
	if w.failed != nil {
		return w.failed
	}
	if sync == nil {
		sync = w.file.Sync
	}
	l := w.log
	mark := w.last.Load() // their frames were written before
	w.durableMu.Lock()
	written := w.durable.end
	w.durableMu.Unlock()
	err := sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.WALSyncs++
	if err != nil {
		w.failed = fmt.Errorf("grouplog: a sync of the WAL failed before: %w", err)
		w.broken.Store(true)
		l.unsynced[w.path] = err
		return err
	}
	w.durableMu.Lock()
	w.size = max(written, w.size)
	w.durableMu.Unlock()
	w.synced.Store(max(mark, w.synced.Load()))
	l.full = false // segments may be free now
	if mark > 0 {
		l.noteSynced(record{path: w.path, synced: w.synced.Load()})
	}
	return nil
}

// Renewed is called when all committed frames of the WAL were written again after a failed sync. The next sync
// then makes them durable, and the failure is no longer final.
func (w *WAL) Renewed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = nil
	w.broken.Store(false)
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	delete(w.log.unsynced, w.path)
}

// noteSynced adds to the next batch up to where a WAL is durable by itself, so that a replay does
// not expect commits in a WAL that was removed or restarted. The caller holds the mutex.
func (l *Log) noteSynced(mark record) {
	for i := range l.synced {
		if l.synced[i].path == mark.path {
			l.synced[i] = mark
			return
		}
	}
	l.synced = append(l.synced, mark)
}

// noteClosed writes to the log that the WAL was closed, even if no commit follows, because SQLite
// is about to remove it. Errors break no promise.
func (w *WAL) noteClosed() {
	r := record{path: w.path, synced: w.synced.Load()}
	q := w.log.queue.New()
	c := &q.Value
	c.wal, c.size = w, recordSize(w.path, 0)
	c.head = append(c.head[:0], make([]byte, c.size)...)
	c.sum = r.encodeHeader(c.head, 0)
	le.PutUint32(c.head, c.sum)
	_ = w.log.submit(q)
	w.log.forget(q)
}

// Close syncs the WAL if it is dirty, and closes the file. All commits must have returned. A second
// Close returns os.ErrClosed.
func (w *WAL) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return &fs.PathError{Op: "close", Path: w.path, Err: os.ErrClosed}
	}
	var err error
	if w.Dirty() {
		err = w.sync(nil)
	}
	w.closed = true
	l := w.log
	l.mu.Lock()
	delete(l.wals, w)
	l.mu.Unlock()
	if err == nil && w.failed == nil {
		l.unpoint(l.absolute(w.path)) // before another log can claim the WAL
	}
	if w.last.Load() > 0 && err == nil {
		go w.noteClosed()
	}
	if cerr := w.file.Close(); err == nil {
		err = cerr
	}
	return err
}
