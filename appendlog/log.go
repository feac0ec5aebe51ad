// SPDX-License-Identifier: MIT

package appendlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/loghook"
)

// SyncMode selects what a [Log] does before an append returns.
type SyncMode int

const (
	// SyncData makes the record durable by fdatasync(2) on Linux: data and size, but not
	// the file's times. On other systems it is SyncFull.
	SyncData SyncMode = iota
	// SyncFull makes the record durable by os.File.Sync.
	SyncFull
	// SyncNone passes the record to the operating system. The record survives a crash of
	// the process. It survives a power cut only after Sync, Rotate or Close.
	SyncNone
)

// String returns data, full or none.
func (m SyncMode) String() string {
	if names := [...]string{"data", "full", "none"}; m >= 0 && int(m) < len(names) {
		return names[m]
	}
	return "SyncMode(" + strconv.Itoa(int(m)) + ")"
}

// Options configure a [Log]. The zero value works.
type Options struct {
	// SegmentSize is the largest size of a segment in bytes. A group of records that does
	// not fit starts the next segment. 0 means 64 MiB. The minimum is 4 KiB, the maximum
	// 1 GiB.
	SegmentSize int64
	// MaxRecord is the largest size of a record in bytes. 0 means 16 MiB, or less if a
	// segment has no room for that.
	MaxRecord int
	// Prefix is the start of the names of the log's files, so that several logs may share
	// a directory. It must not contain a path separator.
	Prefix string
	// Perm is the mode of created files before the umask, such as 0o640 where the group makes
	// backups. 0 means 0o600.
	Perm fs.FileMode
	// Sync selects how durable a record is when its append returns.
	Sync SyncMode
	// Ahead is the number of zero bytes that are written in advance when records reach
	// the end of the file. Syncing a write inside a file is cheaper than syncing a write
	// that extends it. 0 means 1 MiB, and a negative value means none. SyncNone ignores
	// Ahead. With zeros ahead, and a SegmentSize that is a multiple of 4 KiB, records bypass
	// the page cache on ext4 and XFS.
	Ahead int
	// AcceptLoss makes Open continue a log from which durable records are missing,
	// because segments are missing, truncated or damaged. Without it Open returns a
	// *CorruptError and changes nothing. With it Open reads the whole log.
	// Recovery.Lost lists the places. Open adds a list of the losses and a seal to the
	// end of damaged files and changes nothing else in them, so every intact record can
	// still be read, also those of a batch that lost a part. New records go into a new
	// segment. The number of a lost record is not used again. Later calls of Open accept
	// the same losses, and no others, without this option.
	AcceptLoss bool
	// OnRotate, if not nil, is called with each segment that was sealed, by the goroutine
	// whose call sealed it, before that call returns. No lock is held, so OnRotate may
	// use the Log. Its calls may overlap.
	OnRotate func(sealed SegmentInfo)
	// Logger receives a WARN when Open cut off an interrupted write or accepted a loss,
	// and an ERROR when the log fails. nil means slog.Default().
	Logger *slog.Logger
}

const (
	defaultSegmentSize = 64 << 20
	minSegmentSize     = 4 << 10
	defaultMaxRecord   = 16 << 20
	defaultAhead       = 1 << 20
	defaultAppendPerm  = 0o600
)

// withDefaults checks the options and replaces zero values by the defaults.
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
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Ahead = max(cmp.Or(o.Ahead, defaultAhead), 0)
	if o.Sync == SyncNone {
		o.Ahead = 0
	}
	return o, nil
}

// Position is the place of a record in a log. Positions increase in the order of the
// records. Restarts and rotations do not change them.
type Position struct {
	Segment uint64 // index of the segment, from 1
	Offset  int64  // in the segment's file, in bytes
	Seq     uint64 // number of the record in the log, from 1
}

// Compare returns -1 if p lies before q, 0 if they are equal, and 1 if p lies after q.
func (p Position) Compare(q Position) int { return cmp.Compare(p.Seq, q.Seq) }

var (
	// ErrRecordTooLarge is returned for a record that exceeds MaxRecord, and for a batch
	// that does not fit into a segment.
	ErrRecordTooLarge = errors.New("record too large")
	errClosed         = os.ErrClosed
)

// Log is a log that is open for appending. An append returns when its record is durable.
// All methods may be called concurrently. An append becomes cheaper the more goroutines
// append at a time, because they share one write and one sync. The package comment
// describes the order of records, durability and errors.
type Log struct {
	opts  Options
	store segmentStore
	mark  markFile

	trimming sync.Mutex // serialises Trim, and Close against it

	mu       sync.Mutex
	queue    queue
	failed   error // what every call returns
	closed   bool
	end      Position
	segments []segment
	stats    Stats

	// The fields below belong to the leader.
	seg      segment
	file     segmentFile
	off      int64  // offset of the next record
	seq      uint64 // its number
	expected int    // calls that are probably in progress at a time
	synced   int64  // the segment is durable up to here
	written  int64  // the file ends here
	ahead    int64  // see Options; 0 once the disk was found full
	block    int64  // writes are of whole blocks of that size: BlockSize, or 1; 0 until choose has decided
	buf      []byte
	before   segment       // the segment that was sealed last
	sealed   []SegmentInfo // not yet reported by OnRotate

	recovery Recovery
}

// Open opens the log in a directory for appending. It creates the directory and the log
// if they do not exist. Until Close it holds locks on the current segment and on the end
// mark. Meanwhile Open of the same log returns [ErrInUse], in every process and for every
// path that leads to the log.
//
// Open recovers the end of the log. It cuts off the remains of an interrupted write, and
// [Log.Recovery] reports that. If durable records are missing, Open returns a
// [*CorruptError] and changes nothing. [Read] with Salvage then reads the records that
// are left, and Open with Options.AcceptLoss continues with them.
//
// Open writes the last group of records and the end mark again. File systems that write
// to new blocks, such as Btrfs, need free space for that; docs/guide-log.md names the remedy.
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
	if err := st.lockOld(o.Prefix + lockSuffix); err != nil {
		st.Close()
		return nil, err
	}
	if loghook.Wrap != nil {
		return openLog(loghook.Wrap(st), o)
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
	l.reportRecovery()
	return l, nil
}

// reportRecovery logs the results of opening that an operator needs to know.
func (l *Log) reportRecovery() {
	r := &l.recovery
	if r.Dropped > 0 {
		l.opts.Logger.Warn("appendlog: an interrupted write was cut off", "log", l.store.Path(l.opts.Prefix),
			"segment", r.End.Segment, "offset", r.End.Offset, "bytes", r.Dropped, "reason", r.Reason)
	}
	for i := range r.Lost {
		l.opts.Logger.Warn("appendlog: durable records are lost, which Options.AcceptLoss accepted", "error", &r.Lost[i])
	}
}

// Append appends a record and returns its position when it is durable (see [SyncMode]).
// The caller may use p again when Append returns. ErrRecordTooLarge and os.ErrClosed
// concern this call only. Other errors are final; see the package comment.
func (l *Log) Append(p []byte) (Position, error) { return l.append(context.Background(), p) }

// AppendContext is like [Log.Append]. If ctx ends, it stops waiting for a leader. If the
// error is the context's, the record was not written and will not be. Once a leader has
// taken the record, AppendContext ignores the context and returns the append's result.
func (l *Log) AppendContext(ctx context.Context, p []byte) (Position, error) {
	if err := ctx.Err(); err != nil {
		return Position{}, err
	}
	return l.append(ctx, p)
}

// append is Append after the context was checked: it fills a request and waits for its group.
func (l *Log) append(ctx context.Context, p []byte) (Position, error) {
	if len(p) > l.opts.MaxRecord {
		return Position{}, l.tooLarge(int64(len(p)), int64(l.opts.MaxRecord))
	}
	sum := checksum(p) // outside of the leader's critical path
	return l.submit(ctx, [][]byte{p}, []uint32{sum}, recordSize(len(p)))
}

// AppendBatch appends records that belong together and returns the position of the first.
// They get successive numbers. Readers and recovery find all of them or none. The batch
// must fit into a segment; otherwise the error is ErrRecordTooLarge. The caller may use
// the memory again when AppendBatch returns. An empty batch does nothing and returns the
// log's end.
func (l *Log) AppendBatch(records [][]byte) (Position, error) {
	return l.appendBatch(context.Background(), records)
}

// AppendBatchContext is [Log.AppendBatch] with a context; see [Log.AppendContext].
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
	var size int64
	sums := make([]uint32, len(records))
	for i, p := range records {
		if len(p) > l.opts.MaxRecord {
			return Position{}, l.tooLarge(int64(len(p)), int64(l.opts.MaxRecord))
		}
		size += recordSize(len(p))
		sums[i] = checksum(p)
	}
	if room := l.opts.room(); size > room {
		return Position{}, l.tooLarge(size, room)
	}
	return l.submit(ctx, records, sums, size)
}

func (l *Log) tooLarge(n, limit int64) error {
	return l.pathError("append", fmt.Errorf("%w: %d bytes, at most %d", ErrRecordTooLarge, n, limit))
}

// Sync waits for the appends that began before it. With SyncNone it makes their records
// durable. With the other modes they already are.
func (l *Log) Sync() error {
	return l.control("sync", func() error {
		if l.synced == l.off || l.opts.Sync != SyncNone {
			return nil
		}
		return l.sync()
	})
}

// End returns the position after the last durable record, with SyncNone after the last
// written record. The next record gets the Seq of this position.
func (l *Log) End() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Err returns the failure that ended the log, nil while the log works.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Recovery returns the findings of Open.
func (l *Log) Recovery() Recovery { return l.recovery }

// Rotate waits for the appends that began before it, seals the current segment and begins
// a new one. It does nothing if the current segment is empty. A failure is final; see the
// package comment.
func (l *Log) Rotate() error {
	return l.control("rotate", func() error {
		if l.off == segmentHeaderSize {
			return nil
		}
		return l.rotate()
	})
}

// Segments returns the log's segments, oldest first. The last one is the current segment.
// The files of the others do not change and may be copied. Use [Log.Trim] to remove them.
func (l *Log) Segments() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	infos := make([]SegmentInfo, len(l.segments))
	for i := range l.segments {
		infos[i] = l.segments[i].info(l.store)
	}
	infos[len(infos)-1].Size = l.end.Offset
	return infos
}

// Trim removes the segments all of whose records lie before a position, oldest first. It
// keeps the current segment. Each removal is durable before the next, so an interrupted
// Trim leaves a valid log. Readers of a removed segment may fail with fs.ErrNotExist.
// After an error the log still works, and Trim may be called again.
func (l *Log) Trim(before Position) error {
	l.trimming.Lock()
	defer l.trimming.Unlock()
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return l.pathError("trim", errClosed)
		}
		if len(l.segments) < 2 || l.afterOldest() > before.Seq {
			l.mu.Unlock()
			return nil
		}
		oldest, next := l.segments[0], l.segments[1].index
		l.mu.Unlock()
		if err := l.mark.save(func(m *endMark) { m.first = max(m.first, next) }); err != nil {
			return err
		}
		if err := l.removeSegment(oldest); err != nil {
			return err
		}
	}
}

// afterOldest returns a number that is higher than those of all records in the oldest
// segment: the first number of the next segment with a valid header, as the current one
// has. The caller holds mu.
func (l *Log) afterOldest() uint64 {
	for _, g := range l.segments[1:] {
		if g.firstSeq != 0 {
			return g.firstSeq
		}
	}
	return math.MaxUint64
}

// removeSegment removes the oldest segment durably. It may be gone: an earlier Trim was interrupted.
func (l *Log) removeSegment(g segment) error {
	if err := l.store.Remove(g.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := l.store.Sync(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = slices.Delete(l.segments, 0, 1)
	return nil
}

// Close waits for the appends that began before it, cuts the zeros off the last segment,
// records in the end mark that the log was closed, and unlocks the log. If the log has
// failed, Close returns that failure. Later appends and a second Close return
// os.ErrClosed.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return l.pathError("close", errClosed)
	}
	l.closed = true
	err := l.lead(l.shut)

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

// shut closes the segment. The caller is the last leader.
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

// Stats counts the work of a [Log] since it was opened.
type Stats struct {
	Records      uint64        `json:"records"`      // records that were appended
	Bytes        uint64        `json:"bytes"`        // their bytes, without headers
	Groups       uint64        `json:"groups"`       // writes that served one or more appends
	LargestGroup int           `json:"largestGroup"` // most appends served by one write
	Syncs        uint64        `json:"syncs"`        // syncs of a segment
	SyncTime     time.Duration `json:"syncTime"`     // total time of these syncs
	LongestSync  time.Duration `json:"longestSync"`
	Rotations    uint64        `json:"rotations"` // segments that were sealed
	Waiting      int           `json:"waiting"`   // appends that wait for a group now
}

// Plus returns the sum of two sets of counters. LargestGroup and LongestSync are the
// larger of both.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		Records: s.Records + t.Records, Bytes: s.Bytes + t.Bytes, Groups: s.Groups + t.Groups,
		LargestGroup: max(s.LargestGroup, t.LargestGroup), Syncs: s.Syncs + t.Syncs, SyncTime: s.SyncTime + t.SyncTime,
		LongestSync: max(s.LongestSync, t.LongestSync), Rotations: s.Rotations + t.Rotations, Waiting: s.Waiting + t.Waiting,
	}
}

// Stats returns the counters of the log.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = l.queue.calls
	return s
}
