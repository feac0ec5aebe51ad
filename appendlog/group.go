// SPDX-License-Identifier: MIT

package appendlog

import (
	"context"
	"fmt"
	"time"

	"github.com/ringside-io/ringside/internal/groupcommit"
)

// maxGroup is the largest group in bytes. A larger write gains nothing and delays the
// appends in it. A single record or batch may be larger.
const maxGroup = 1 << 20

// call is one call in the queue of a Log.
type call struct {
	records [][]byte // the caller's
	sums    []uint32 // of the records
	size    int64    // that they take in the segment
	one     [1][]byte
	control func() error // instead of records: run by the caller when it leads
	pos     Position     // of the first record
}

type (
	request = groupcommit.Request[call]
	group   = groupcommit.Group[call]
)

// free keeps a request for the next call, without the caller's memory.
func (l *Log) free(r *request) {
	r.Value = call{sums: r.Value.sums[:0]}
	l.queue.Free(r)
}

// submit queues records and returns when they are durable or the append has failed.
func (l *Log) submit(ctx context.Context, r *request) (Position, error) {
	l.mu.Lock()
	if err := l.refusal("append"); err != nil {
		l.mu.Unlock()
		l.free(r)
		return Position{}, err
	}
	lead := l.queue.Add(r)
	l.mu.Unlock()
	if !lead {
		var withdrawn bool
		if lead, withdrawn = l.queue.WaitContext(ctx, &l.mu, r); withdrawn {
			l.free(r)
			return Position{}, ctx.Err()
		}
	}
	if lead {
		l.lead(r)
	}
	pos, err := r.Value.pos, r.Err
	l.free(r)
	return pos, err
}

// refusal returns why nothing may be queued. The caller holds the mutex.
func (l *Log) refusal(op string) error {
	if l.closed {
		return l.pathError(op, errClosed)
	}
	return l.failed
}

// control runs f as the leader, after all requests that were queued before.
func (l *Log) control(op string, f func() error) error {
	r := l.queue.New()
	r.Value.control = func() error {
		if l.failed != nil {
			return l.failed
		}
		return f()
	}
	l.mu.Lock()
	if err := l.refusal(op); err != nil {
		l.mu.Unlock()
		l.free(r)
		return err
	}
	lead := l.queue.Add(r)
	l.mu.Unlock()
	return l.finish(r, lead)
}

// finish waits until the request becomes the leader's, and runs its function. Functions
// are never taken into a group, so every such request leads at some time.
func (l *Log) finish(r *request, lead bool) error {
	if !lead {
		l.queue.Wait(r)
	}
	l.lead(r)
	err := r.Err
	l.free(r)
	return err
}

// lead serves the request at the head of the queue and the requests after it that fit
// into the group. Then it passes the lead on.
func (l *Log) lead(own *request) {
	if own.Value.control == nil {
		l.queue.Gather()
	}
	g, size := l.take()
	var err error
	switch {
	case own.Value.control != nil:
		err = own.Value.control()
	case l.failed != nil: // only leaders write it
		err = l.failed
	default:
		err = l.commit(g, size)
	}
	sealed := l.sealed
	l.sealed = nil
	l.retire(own, g, err)
	if l.opts.OnRotate != nil {
		for _, info := range sealed {
			l.opts.OnRotate(info)
		}
	}
}

// take takes the requests of one group: either one request with a function, or requests
// with records up to the next function.
func (l *Log) take() (g group, size int64) {
	limit := min(maxGroup, l.opts.room())
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := l.queue.First(); r != nil; r = l.queue.First() {
		c := &r.Value
		if g.Len() > 0 && (c.control != nil || size+c.size > limit) {
			break
		}
		l.queue.Take(&g)
		size += c.size
		if c.control != nil {
			break
		}
	}
	return g, size
}

// commit writes a group and makes it durable. The caller leads.
func (l *Log) commit(g group, size int64) error {
	if l.off+size > segmentHeaderSize+l.opts.room() && l.off > segmentHeaderSize {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if err := l.write(g); err != nil {
		return err
	}
	if l.opts.Sync == SyncNone {
		return nil
	}
	if err := l.extend(size); err != nil {
		return err
	}
	return l.sync()
}

// write encodes a group after the last record and writes it.
func (l *Log) write(g group) error {
	l.buf = l.buf[:0]
	seq, bytes := l.seq, 0
	for r := g.First(); r != nil; r = r.Next() {
		c := &r.Value
		c.pos = Position{Segment: l.seg.index, Offset: l.off + int64(len(l.buf)), Seq: seq}
		for i, p := range c.records {
			at := l.off + int64(len(l.buf))
			h := recordHeader{length: len(p), more: i < len(c.records)-1, seq: seq,
				behind: uint32(at - l.synced), payload: c.sums[i]}
			l.buf = appendRecord(l.buf, h, p, l.seg.seed, at)
			bytes += len(p)
			seq++
		}
	}
	if err := writeFull(l.file, l.buf, l.off); err != nil {
		return err
	}
	l.off += int64(len(l.buf))
	l.records, l.bytes = seq-l.seq, uint64(bytes)
	l.seq = seq
	return nil
}

// zeros is the unit in which zeros are written ahead of the records.
var zeros [64 << 10]byte

// aheadFactor is how many times larger than a group Ahead must be. Otherwise writing the
// zeros costs more than the cheaper syncs save.
const aheadFactor = 8

// extend writes zeros after the records; see [Options.Ahead]. When the disk is full, it
// stops doing so.
func (l *Log) extend(group int64) error {
	if l.off <= l.written {
		return nil
	}
	l.written = l.off
	if group > l.ahead/aheadFactor {
		return nil
	}
	to := min(l.off+l.ahead, l.opts.SegmentSize)
	for l.written < to {
		n := min(int64(len(zeros)), to-l.written)
		if err := writeFull(l.file, zeros[:n], l.written); err != nil {
			if !noSpace(err) {
				return err
			}
			l.ahead, l.written = 0, l.off
			return l.file.Truncate(l.off)
		}
		l.written += n
	}
	return nil
}

// sync makes the segment durable. The caller leads.
func (l *Log) sync() error {
	start := time.Now()
	if err := l.file.Sync(l.opts.Sync == SyncFull); err != nil {
		return err
	}
	took := time.Since(start)
	// A later Open would not find records in a file that was renamed or deleted.
	if err := l.file.Check(); err != nil {
		return err
	}
	l.synced = l.off
	l.mark.advance(Position{Segment: l.seg.index, Offset: l.off, Seq: l.seq})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Syncs++
	l.stats.SyncTime += took
	l.stats.LongestSync = max(l.stats.LongestSync, took)
	return nil
}

// retire publishes the results of the leader, wakes its group and passes the lead on.
func (l *Log) retire(own *request, g group, err error) {
	l.mu.Lock()
	l.account(g, err)
	if err != nil && l.failed == nil {
		l.failed = fmt.Errorf("appendlog: the log failed before: %w", err)
		go l.opts.Logger.Error("appendlog: the log failed; close it and open it again", "error", err) // without mu
	}
	next := l.queue.Pass(g.Len())
	l.mu.Unlock()
	if err != nil {
		for r := g.First(); r != nil; r = r.Next() {
			r.Value.pos = Position{}
		}
	}
	groupcommit.Retire(own, g, next, err)
}

// account counts a group and moves the end of the log. The caller leads and holds the
// mutex.
func (l *Log) account(g group, err error) {
	if err != nil || g.First().Value.control != nil {
		return
	}
	l.stats.Records += l.records
	l.stats.Bytes += l.bytes
	l.stats.Groups++
	l.stats.LargestGroup = max(l.stats.LargestGroup, g.Len())
	l.end = Position{Segment: l.seg.index, Offset: l.off, Seq: l.seq}
}

// rotate seals the current segment and begins the next. The caller leads.
func (l *Log) rotate() error {
	if l.opts.Sync == SyncNone && l.off > l.synced {
		if err := l.sync(); err != nil {
			return err
		}
	}
	g, f, err := createSegment(l.store, l.opts.Prefix, l.seg.index+1, l.seq, l.mark.log)
	if err != nil {
		return err
	}
	if err := l.seal(g); err != nil {
		f.Close()
		return err
	}
	l.seg, l.file = g, f
	l.off, l.synced, l.written = segmentHeaderSize, segmentHeaderSize, segmentHeaderSize

	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments[len(l.segments)-1] = l.before
	l.segments = append(l.segments, g)
	l.stats.Rotations++
	l.end = Position{Segment: g.index, Offset: l.off, Seq: l.seq}
	return nil
}

// seal ends the current segment. The next segment must be durable. seal cuts off the
// zeros, writes the seal, syncs and closes the file. The seal is durable before a record
// of the next segment is acknowledged, so that the loss of that segment can be detected.
func (l *Log) seal(next segment) error {
	l.before = l.seg
	l.before.size = l.off
	if l.written > l.off {
		if err := l.file.Truncate(l.off); err != nil {
			return err
		}
	}
	if l.seg.version > 1 {
		if err := l.before.end(l.file, l.off, next.index, next.firstSeq); err != nil {
			return err
		}
	}
	_ = l.file.Close() // all of it is durable
	l.file = nil
	l.sealed = append(l.sealed, l.before.info(l.store))
	return nil
}
