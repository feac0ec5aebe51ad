// SPDX-License-Identifier: MIT

// Package appendlog keeps a durable log: records that any number of goroutines
// append, in a directory of segment files. One of the goroutines that wait writes
// the records of all of them by one write and makes them durable by one sync
// (group commit). Open finds the records again after a crash.
package appendlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/ringside-io/ringside/internal/groupcommit"
)

// SyncMode says what an [Log] does before an append returns.
type SyncMode int

const (
	// SyncData makes the record durable, by fdatasync(2) on Linux: size and data,
	// not the time stamps. Elsewhere it is SyncFull.
	SyncData SyncMode = iota
	// SyncFull makes the record durable by what os.File.Sync does.
	SyncFull
	// SyncNone hands the record to the operating system: it survives the process
	// but not the machine, until Sync, Rotate or Close makes it durable.
	SyncNone
)

// String returns data, full or none.
func (m SyncMode) String() string {
	if names := [...]string{"data", "full", "none"}; m >= 0 && int(m) < len(names) {
		return names[m]
	}
	return "SyncMode(" + strconv.Itoa(int(m)) + ")"
}

// Options configure an [Log]; the zero value works.
type Options struct {
	// SegmentSize bounds the size of a segment in bytes: a group of records that
	// does not fit begins the next one. 0 is 64 MiB; at least 4 KiB, at most
	// 1 GiB.
	SegmentSize int64
	// MaxRecord bounds the size of a record in bytes. 0 is 16 MiB, or what fits
	// into a segment if that is less.
	MaxRecord int
	// Prefix begins the names of the log's files, so that several logs may share
	// a directory. It must not contain a path separator.
	Prefix string
	// Perm is the mode of created files before the umask. 0 is 0o600.
	Perm fs.FileMode
	// Sync says when an append returns.
	Sync SyncMode
	// Ahead is by how many bytes of zeros the segment is extended when records
	// reach its end: syncing a write inside the file is cheaper than syncing one
	// that makes it longer. 0 is 1 MiB, negative is none. It is not used with
	// SyncNone.
	Ahead int
	// AcceptLoss lets Open go on where records that were durable are gone: where
	// segments are missing, cut or damaged. Otherwise Open returns a *CorruptError and
	// changes nothing. Recovery.Lost tells what is gone. The damaged files stay as they
	// are, but for a mark at their end, new records go into a new segment, and no
	// record gets the number of one that is lost. Later calls of Open find the loss
	// accepted.
	AcceptLoss bool
	// OnRotate, when not nil, is called with each segment that was sealed, by the
	// goroutine whose call sealed it, before that call returns. No lock is held: it
	// may use the Log. Calls may overlap.
	OnRotate func(sealed SegmentInfo)
}

const (
	defaultSegmentSize = 64 << 20
	minSegmentSize     = 4 << 10
	defaultMaxRecord   = 16 << 20
	defaultAhead       = 1 << 20
	defaultAppendPerm  = 0o600
)

// withDefaults checks the options and fills in what is zero.
func (o Options) withDefaults() (Options, error) {
	o.SegmentSize = cmp.Or(o.SegmentSize, defaultSegmentSize)
	if o.SegmentSize < minSegmentSize || o.SegmentSize > maxSegmentSize {
		return o, fmt.Errorf("appendlog: segment size %d is not between %d and %d", o.SegmentSize, minSegmentSize, maxSegmentSize)
	}
	room := o.room() - recordHeaderSize
	o.MaxRecord = cmp.Or(o.MaxRecord, int(min(defaultMaxRecord, room)))
	if o.MaxRecord < 1 || int64(o.MaxRecord) > room {
		return o, fmt.Errorf("appendlog: records of up to %d bytes do not fit into segments of %d", o.MaxRecord, o.SegmentSize)
	}
	if strings.ContainsAny(o.Prefix, `/\`) {
		return o, fmt.Errorf("appendlog: prefix %q contains a path separator", o.Prefix)
	}
	if o.Sync < SyncData || o.Sync > SyncNone {
		return o, fmt.Errorf("appendlog: unknown SyncMode(%d)", int(o.Sync))
	}
	o.Perm = cmp.Or(o.Perm, defaultAppendPerm)
	o.Ahead = max(cmp.Or(o.Ahead, defaultAhead), 0)
	if o.Sync == SyncNone {
		o.Ahead = 0
	}
	return o, nil
}

// room returns how many bytes of records fit into a segment.
func (o *Options) room() int64 { return o.SegmentSize - segmentHeaderSize - sealSize }

// Position is where a record is in a log. Positions grow with the order of the
// records, and stay what they are over restarts and rotations.
type Position struct {
	Segment uint64 // index of the segment, from 1
	Offset  int64  // in the segment's file, in bytes
	Seq     uint64 // number of the record in the log, from 1
}

// Compare returns -1, 0 or 1 as p lies before, at or after q.
func (p Position) Compare(q Position) int { return cmp.Compare(p.Seq, q.Seq) }

var (
	// ErrRecordTooLarge is what an append answers whose record exceeds MaxRecord,
	// or whose batch does not fit into a segment.
	ErrRecordTooLarge = errors.New("record too large")
	errClosed         = os.ErrClosed
)

// Log appends records to a log: a directory of segment files. An append
// returns when its record is durable. All methods may be called concurrently,
// and the more goroutines append at a time the cheaper each append is: one of
// those that wait leads, writes the records of all of them by one write and
// makes them durable by one sync.
//
// # Order and durability
//
// The records of one goroutine are in the order of its calls. A record whose
// append returned without error is found by every later Open, whatever
// happened in between, as long as the disk keeps what it acknowledged and writes
// a 512-byte sector whole or not at all. A record whose append failed, or never
// returned, may be found or not.
//
// # Errors
//
// A failed write, sync or rotation is reported to every append it concerned, and
// is final: after a failed sync nobody knows what is on the disk, and asking
// again would be answered with a success that means nothing. Every later call
// answers an error that wraps the first one, and so does Close. Closing and
// opening anew finds out what survived. A full disk is such a failure too.
//
// # How it writes
//
// Records go through the page cache, by write and fdatasync into zeros written
// in advance. Of what was measured on ext4 (group of 64 records of 128 bytes),
// that costs 0.6 times the plain extending append, because the sync has no
// metadata to write; blocks that are merely reserved (fallocate) 0.75, because
// they have to be marked as written; RWF_DSYNC instead of fdatasync the same in
// each case; O_DIRECT 0.9 of what was chosen, in exchange for aligned rewriting
// of acknowledged records, so it was not. A ring hands syncs to a worker thread,
// which costs more than the leader's own system call.
//
// The format on disk is described in docs/appendlog.md.
type Log struct {
	opts  Options
	store segmentStore
	mark  markFile

	trimming sync.Mutex // serialises Trim, and Close against it

	mu       sync.Mutex
	queue    groupcommit.Queue[call]
	closed   bool
	failed   error // what every call answers
	end      Position
	segments []segment
	stats    Stats

	// What follows belongs to the goroutine that leads.
	seg     segment
	file    segmentFile
	off     int64  // where the next record goes
	seq     uint64 // its number
	synced  int64  // up to where the segment is durable
	written int64  // up to where the file extends
	ahead   int64  // see Options; 0 once the disk was found full
	buf     []byte
	before  segment       // that was sealed last
	sealed  []SegmentInfo // not yet reported by OnRotate

	recovery Recovery
}

// Open opens the log in a directory for appending, and creates both when
// they are missing. Until Close it holds locks on the segment that is written and
// on the end mark: a second Open, by any path and in any process, returns
// [ErrInUse].
//
// The end of the log is recovered. What an interrupted write left behind is cut
// off; [Log.Recovery] tells what. Where records are gone that were durable, Open
// returns a [*CorruptError] and changes nothing: [Read] reads what is left, and
// Options.AcceptLoss goes on with it.
func Open(dir string, o Options) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	st, err := openDirStore(dir, o.Perm)
	if err != nil {
		return nil, err
	}
	return openLog(st, o)
}

// openLog owns the store. The options have their defaults.
func openLog(st segmentStore, o Options) (*Log, error) {
	l := &Log{opts: o, store: st, ahead: int64(o.Ahead), mark: markFile{store: st, name: o.Prefix + markSuffix}}
	if err := l.recover(); err != nil {
		if l.file != nil {
			l.file.Close()
		}
		l.mark.close()
		st.Close()
		return nil, err
	}
	return l, nil
}

// Append appends a record and returns where it is, when it is durable (see
// [SyncMode]). p is the caller's again when Append returns. The errors are
// ErrRecordTooLarge and os.ErrClosed, which concern this call only, and the
// failures described at [Log].
func (l *Log) Append(p []byte) (Position, error) { return l.append(context.Background(), p) }

// AppendContext is Append that can be given up while the record waits for its
// group. Once a leader has taken the record, the wait goes on in spite of the
// context and the append's own result is returned: an error of the context means
// that the record was not, and will not be, written.
func (l *Log) AppendContext(ctx context.Context, p []byte) (Position, error) {
	if err := ctx.Err(); err != nil {
		return Position{}, err
	}
	return l.append(ctx, p)
}

func (l *Log) append(ctx context.Context, p []byte) (Position, error) {
	if len(p) > l.opts.MaxRecord {
		return Position{}, l.tooLarge(int64(len(p)), int64(l.opts.MaxRecord))
	}
	sum := checksum(p) // here, where it costs no other append anything
	r := l.queue.New()
	w := &r.Value
	w.one[0] = p
	w.sums = append(w.sums, sum)
	w.records = w.one[:]
	w.size = recordSize(len(p))
	return l.submit(ctx, r)
}

// AppendBatch appends records that belong together, in their order and with
// successive numbers, and returns where the first is. It is all or nothing: no
// reader and no recovery sees a part of the batch. Together the records must fit
// into a segment. An empty batch does nothing and returns the log's end.
func (l *Log) AppendBatch(records [][]byte) (Position, error) {
	return l.appendBatch(context.Background(), records)
}

// AppendBatchContext is AppendBatch that can be given up as AppendContext can.
func (l *Log) AppendBatchContext(ctx context.Context, records [][]byte) (Position, error) {
	if err := ctx.Err(); err != nil {
		return Position{}, err
	}
	return l.appendBatch(ctx, records)
}

func (l *Log) appendBatch(ctx context.Context, records [][]byte) (Position, error) {
	if len(records) == 0 {
		return l.End(), nil
	}
	r := l.queue.New()
	w := &r.Value
	w.records = records
	for _, p := range records {
		w.size += recordSize(len(p))
		w.sums = append(w.sums, checksum(p))
		if len(p) > l.opts.MaxRecord {
			l.free(r)
			return Position{}, l.tooLarge(int64(len(p)), int64(l.opts.MaxRecord))
		}
	}
	if room := l.opts.room(); w.size > room {
		size := w.size
		l.free(r)
		return Position{}, l.tooLarge(size, room)
	}
	return l.submit(ctx, r)
}

func (l *Log) tooLarge(n, limit int64) error {
	return l.pathError("append", fmt.Errorf("%w: %d bytes, at most %d", ErrRecordTooLarge, n, limit))
}

func (l *Log) pathError(op string, err error) error {
	return &fs.PathError{Op: op, Path: l.store.Path(l.opts.Prefix), Err: err}
}

// Sync waits for the appends that were begun before, and makes them durable if
// that was not their own business (SyncNone).
func (l *Log) Sync() error {
	return l.control("sync", func() error {
		if l.synced == l.off || l.opts.Sync != SyncNone {
			return nil
		}
		return l.sync()
	})
}

// End returns the position that follows the last record that is durable, or with
// SyncNone was written: the next record will have its Seq.
func (l *Log) End() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Err returns the failure after which the log takes no more, nil as long as it
// works.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Recovery tells what Open found.
func (l *Log) Recovery() Recovery { return l.recovery }

// Close waits for the appends that were begun before, cuts the zeros off the
// last segment, marks the clean end and unlocks the log. It returns the failure of
// the log if there was one. Appends begun later answer os.ErrClosed, and so
// does a second Close.
func (l *Log) Close() error {
	r := l.queue.New()
	r.Value.control = l.shut
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.free(r)
		return l.pathError("close", errClosed)
	}
	l.closed = true
	lead := l.queue.Add(r)
	l.mu.Unlock()
	err := l.finish(r, lead)

	l.trimming.Lock()
	defer l.trimming.Unlock()
	if cerr := l.mark.close(); err == nil {
		err = cerr
	}
	if cerr := l.store.Close(); err == nil {
		err = cerr
	}
	return err
}

// shut closes the segment. The caller leads, and nobody will after it.
func (l *Log) shut() error {
	l.buf = nil
	if l.failed != nil {
		l.file.Close()
		return l.failed
	}
	var err error
	if l.opts.Sync == SyncNone && l.off > l.synced {
		err = l.sync()
	}
	if err == nil && l.written > l.off {
		err = l.file.Truncate(l.off)
	}
	if err == nil {
		err = l.file.Check()
	}
	if err == nil {
		err = l.mark.save(func(m *endMark) { m.clean, m.end = true, l.end })
	}
	if cerr := l.file.Close(); err == nil {
		err = cerr
	}
	return err
}
