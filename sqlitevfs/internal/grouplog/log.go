// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
	"github.com/ringside-io/ringside/sqlitevfs/internal/groupcommit"
)

var (
	// ErrInUse is returned by Open if the log is already open, in this process or another.
	ErrInUse = errors.New("the log is in use")
	// ErrClaimed is returned by Attach if the WAL already belongs to another log, or if the log has
	// another WAL of that name, which was removed while it was attached. The commits must then be
	// made durable by syncing the WAL, as without a log.
	ErrClaimed = errors.New("the WAL is claimed by another log")
	// ErrBusy means that commits have to be replayed into a database that is in use, or that
	// another process takes too long to replay.
	ErrBusy = errors.New("a database to be recovered is in use")
	// ErrPending is returned by Open while the log has commits that cannot be written into their
	// WAL for now. All other commits have been replayed.
	ErrPending = errors.New("the log holds commits that are still to be replayed")
	// ErrGone means that the log's file was removed or replaced while it was in use.
	ErrGone = errors.New("the log was removed or replaced while it was in use")
	errFull = errors.New("the log has no room")
	// ErrElsewhere is returned by a log with [Options.Local] for a WAL that is not in its
	// directory.
	ErrElsewhere = errors.New("a WAL in another directory than its log")
)

// CorruptError reports damage to the log's file other than an interrupted write. Acknowledged
// commits may be lost.
type CorruptError struct {
	Path   string
	Offset int64 // offset of the damage in the file
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("grouplog: %s is damaged at %d: %s", e.Path, e.Offset, e.Reason)
}

// Log is a log shared by the databases of a process. Its methods may be called concurrently.
type Log struct {
	opts   Options
	dir    string
	path   string
	file   disk.File
	id     disk.ID // of the file
	header fileHeader
	origin origin // of the batches

	busy    atomic.Int64 // commits in progress, see Enter
	company atomic.Int64 // their average, in sixteenths

	mu         sync.Mutex
	changed    *sync.Cond // free, failed or closed changed
	queue      groupcommit.Queue[commit]
	idle       *sync.Cond // signalled when the queue has no leader
	closed     bool
	failed     error
	broken     atomic.Bool      // failed is set
	full       bool             // there is no room, until a WAL is synced
	cannotGrow bool             // the file can no longer grow
	small      []*segment       // first segments that are no longer used
	unsynced   map[string]error // WALs that could not be synced: their records are needed
	synced     []record         // synced WALs, to be noted in the next batch
	wals       map[*WAL]struct{}
	used       []*segment // oldest first; the last is written
	free       []*segment
	total      int   // segments in the file
	zeroed     int64 // bytes of zeros of the next segment, behind them
	limit      int   // maximum number of segments
	stats      Stats

	// revision is that of the header written last. While the provider runs, only the provider uses
	// it.
	revision uint64

	wakeup   chan struct{} // wakes the provider
	quit     chan struct{}
	provider sync.WaitGroup

	// The fields below belong to the leader.
	off   int64    // in the segment, of the next batch
	seq   uint64   // of the next batch
	prev  []uint32 // owners of the records in the last batch
	marks []record // of synced WALs, for the batch being built
	buf   []byte   // of one batch; at most as long as the longest segment so far
}

// segment is a piece of the log's file.
type segment struct {
	off   int64           // offset in the file
	size  int64           // bytes
	first uint64          // its first batch
	last  map[*WAL]uint64 // the last batch with a record of a WAL
}

// Stats counts the work of a [Log] since it was opened.
type Stats struct {
	Commits  uint64 // made durable by the log
	Bytes    uint64 // of their frames
	Batches  uint64 // writes of commits
	Large    uint64 // commits that were made durable by a sync of their WAL
	WALSyncs uint64 // all syncs of WALs
	Reclaims uint64 // segments whose WALs had to be synced
	Segments int    // in the file
}

// Open opens the log in a directory, creates it if it does not exist, and replays it. Then every
// WAL has the content that it would have if each acknowledged commit had synced it. The databases
// should not have been opened before. Open returns [ErrPending] if there are WALs that could not be
// completed, for example because their database is in use. The report lists them.
func Open(dir string, o Options) (*Log, Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, Report{}, err
	}
	if dir, err = directory(dir); err != nil {
		return nil, Report{}, err
	}
	l := &Log{opts: o, dir: dir, path: filepath.Join(dir, o.Name), wals: map[*WAL]struct{}{}, unsynced: map[string]error{},
		wakeup: make(chan struct{}, 1), quit: make(chan struct{})}
	l.queue.MaxIdle, l.queue.MaxWait = gatherMaxIdle, gatherMaxWait
	l.changed, l.idle = sync.NewCond(&l.mu), sync.NewCond(&l.mu)
	report, err := l.open()
	if err != nil {
		if l.file != nil {
			l.file.Close()
		}
		return nil, report, err
	}
	l.provider.Add(1)
	go l.provideSegments()
	return l, report, nil
}

// Recover replays the log in a directory, as [Open] does, and leaves it empty, unless
// [Report.Pending] reports unfinished work. It returns fs.ErrNotExist if there is no log. Any other
// error means that the log cannot be read, and that each WAL may lack commits.
func Recover(dir string, o Options) (Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Report{}, err
	}
	if dir, err = directory(dir); err != nil {
		return Report{}, err
	}
	l := &Log{opts: o, dir: dir, path: filepath.Join(dir, o.Name)}
	replayLock, err := l.lockReplay()
	if err != nil {
		return Report{}, err
	}
	defer replayLock.Close()
	f, err := o.FS.Open(l.path, disk.Durable, 0)
	if err != nil {
		return Report{}, err
	}
	defer f.Close()
	if err := l.lock(f); err != nil || l.header.clean {
		return Report{}, err
	}
	if k := o.Known; k != nil && k.ID == l.header.id && k.Generation == l.header.generation {
		return *k, nil
	}
	report, err := l.recover()
	if err == nil && report.Replaced > 0 {
		report.Kept, err = l.keepAside()
	}
	if err == nil && report.Elsewhere == 0 && report.Pending() == nil && !o.Salvage {
		// If that fails, the log is replayed again, which has no further effect.
		_ = l.reset(true)
	}
	return report, err
}

// open opens or creates the log, replays it, and begins a new generation if nothing is pending.
func (l *Log) open() (Report, error) {
	replayLock, err := l.lockReplay()
	if errors.Is(err, fs.ErrNotExist) {
		if err = l.create(); err == nil {
			replayLock, err = l.lockReplay()
		}
	}
	if err != nil {
		return Report{}, err
	}
	defer replayLock.Close()
	f, err := l.opts.FS.Open(l.path, disk.Durable, 0)
	if err != nil {
		return Report{}, err
	}
	if err := l.lock(f); err != nil {
		return Report{}, err
	}
	report, err := l.recover()
	if err == nil {
		err = report.Pending()
	}
	if err == nil && report.Elsewhere > 0 {
		err = &fs.PathError{Op: "open", Path: l.path, Err: ErrElsewhere}
	}
	if err == nil && report.Replaced > 0 {
		report.Kept, err = l.keepAside()
	}
	if err != nil {
		return report, err
	}
	l.origin = originOf(l.file)
	if err := l.reset(false); err != nil {
		return report, err
	}
	if l.id, err = l.file.ID(); err != nil {
		return report, err
	}
	for i := range l.total {
		l.addFree(&segment{off: l.segmentOffset(i), size: l.segmentSize(i)})
	}
	l.limit = max(l.total, l.opts.segments(l.header.segment))
	l.seq = 1
	l.use()
	return report, nil
}

// lock locks the file for this log, and reads its header.
func (l *Log) lock(f disk.File) error {
	l.file = f
	if ok, err := f.TryLock(userByte, 1); err != nil {
		return err
	} else if !ok {
		return &fs.PathError{Op: "open", Path: l.path, Err: ErrInUse}
	}
	f.Uncache()
	return l.readHeader()
}

// readHeader finds the valid copy of the header with the highest revision.
func (l *Log) readHeader() error {
	size, err := l.file.Size()
	if err != nil {
		return err
	}
	p := sys.AlignedBytes(firstBatch, block)
	if err := readFull(l.file, p, 0); errors.Is(err, io.ErrUnexpectedEOF) {
		return &CorruptError{l.path, size, "shorter than its header"}
	} else if err != nil {
		return err
	}
	copies := 0
	for i := range 2 {
		if h, ok := decodeFileHeader(p[i*block:]); ok {
			if copies++; h.revision > l.header.revision {
				l.header, l.origin = h, decodeOrigin(p[i*block:])
			}
		}
	}
	if copies == 0 && l.opts.Salvage {
		return l.guessHeader(size)
	} else if copies == 0 {
		return &CorruptError{l.path, 0, "no valid header"}
	}
	l.revision = l.header.revision
	// The invalid copy may have been the newer one.
	l.header.clean = l.header.clean && copies == 2
	if size > maxFile {
		return &CorruptError{l.path, maxFile, "longer than a log can be"}
	}
	l.total = l.segmentsIn(size)
	if l.total < 1 {
		return &CorruptError{l.path, size, "shorter than one segment"}
	}
	return nil
}

// reset begins a new generation, durably, which invalidates all batches. A clean
// generation has no batches and will not get any.
func (l *Log) reset(clean bool) error {
	h := l.header
	h.generation++
	h.live = 1
	h.clean = clean
	for range 2 { // both copies, so that damage to one is harmless
		if err := l.writeHeader(h); err != nil {
			return err
		}
	}
	l.header = h
	return nil
}

// writeHeader writes the next revision of the header, durably. It must not be called concurrently.
func (l *Log) writeHeader(h fileHeader) error {
	h.revision = l.revision + 1
	p := sys.AlignedBytes(block, block)
	h.encode(p)
	l.origin.encode(p)
	if err := writeFull(l.file, p, h.slot()); err != nil {
		return err
	}
	l.revision = h.revision
	return nil
}

// zeroPiece is the size of a write to a new segment.
const zeroPiece = 256 << 10

// zero writes zeros to a new segment, because overwriting is cheaper than extending.
func zero(f disk.File, off, n int64) error {
	p := sys.AlignedBytes(int(min(zeroPiece, n)), block)
	for end := off + n; off < end; off += int64(len(p)) {
		p = p[:min(int64(len(p)), end-off)]
		if err := writeFull(f, p, off); err != nil {
			return err
		}
	}
	return nil
}

// Stats returns the counters so far.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Segments = l.total
	return s
}

// Err returns the failure that ended the log, or nil while it works.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Path returns the name of the log's file.
func (l *Log) Path() string { return l.path }

// fail ends the log. Later commits sync their WALs. The provider at once syncs the WALs with
// commits that are durable only in the log. The caller holds the mutex.
func (l *Log) fail(err error) {
	if l.failed == nil {
		l.failed = fmt.Errorf("grouplog: the log failed before: %w", err)
		l.broken.Store(true)
	}
	l.wakeProvider()
	l.changed.Broadcast()
}

// Failed reports whether the log has failed, see [Log.Err].
func (l *Log) Failed() bool { return l.broken.Load() }

// Close waits for the commits in progress, syncs the attached WALs, and closes the log. It returns
// the failure of the log if there was one. After a failure, or if a WAL could not be synced, the
// file is kept for the next Open to replay.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return &fs.PathError{Op: "close", Path: l.path, Err: os.ErrClosed}
	}
	l.closed = true
	for l.queue.Leading() {
		l.idle.Wait()
	}
	attached := make([]*WAL, 0, len(l.wals))
	for w := range l.wals {
		attached = append(attached, w)
	}
	l.changed.Broadcast()
	l.mu.Unlock()
	close(l.quit)
	l.provider.Wait()

	var err error
	for _, w := range attached {
		if cerr := w.Close(); err == nil && !errors.Is(cerr, os.ErrClosed) {
			err = cerr
		}
	}
	if failed := l.Err(); failed != nil {
		err = failed
	}
	if err == nil && len(l.unsynced) == 0 {
		err = l.reset(true) // so that the next Open has nothing to replay
	}
	if cerr := l.file.Close(); err == nil {
		err = cerr
	}
	return err
}
