// SPDX-License-Identifier: MIT

package appendlog

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// maxGroup bounds what a leader writes at a time, in bytes: beyond it a larger
// write gains nothing and only makes the appends in it wait. A single record or
// batch may be larger.
const maxGroup = 1 << 20

// A waiter is one call in the queue of a Log. Its lead passes from the queue
// (under the mutex) to the leader that takes it, and back to the caller by wake.
type waiter struct {
	prev, next *waiter
	state      waiterState // under the mutex

	records [][]byte // the caller's
	sums    []uint32 // of the records
	size    int64    // that they take in the segment
	one     [1][]byte
	control func() error // instead of records: run by the caller when it leads

	wake chan struct{} // one token: taken and done, or the lead
	pos  Position
	err  error
}

type waiterState int

const (
	waiting waiterState = iota // in the queue
	leader                     // at the head of the queue, chosen to lead
	taken                      // in a group
)

// waiterList is a queue of waiters.
type waiterList struct{ head, tail *waiter }

func (l *waiterList) push(w *waiter) {
	if w.prev = l.tail; w.prev == nil {
		l.head = w
	} else {
		w.prev.next = w
	}
	l.tail = w
}

func (l *waiterList) remove(w *waiter) {
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// maxSpare bounds how many waiters are kept for reuse.
const maxSpare = 4096

// spareWaiters keeps waiters with their channels for the next calls. A list of
// our own, because sync.Pool forgets at every garbage collection.
type spareWaiters struct {
	mu   sync.Mutex
	list *waiter
	n    int
}

func (s *spareWaiters) get() *waiter {
	s.mu.Lock()
	w := s.list
	if w != nil {
		s.list = w.next
		s.n--
	}
	s.mu.Unlock()
	if w == nil {
		return &waiter{wake: make(chan struct{}, 1)}
	}
	w.next = nil
	return w
}

// put forgets the caller's memory and keeps the waiter.
func (s *spareWaiters) put(w *waiter) {
	*w = waiter{wake: w.wake, sums: w.sums[:0]}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n < maxSpare {
		w.next = s.list
		s.list = w
		s.n++
	}
}

// submit queues records and returns when they are durable or failed.
func (l *Log) submit(ctx context.Context, w *waiter) (Position, error) {
	l.mu.Lock()
	if err := l.refusal("append"); err != nil {
		l.mu.Unlock()
		l.spare.put(w)
		return Position{}, err
	}
	lead := l.enqueue(w)
	l.mu.Unlock()
	if !lead {
		var withdrawn bool
		if lead, withdrawn = l.wait(ctx, w); withdrawn {
			l.spare.put(w)
			return Position{}, ctx.Err()
		}
	}
	if lead {
		l.lead(w)
	}
	pos, err := w.pos, w.err
	l.spare.put(w)
	return pos, err
}

// wait returns when the waiter's group is done, it is to lead, or it gave up.
func (l *Log) wait(ctx context.Context, w *waiter) (lead, withdrawn bool) {
	done := ctx.Done()
	if done == nil {
		<-w.wake
		return w.state == leader, false
	}
	select {
	case <-w.wake:
		return w.state == leader, false
	case <-done:
		if l.withdraw(w) {
			return false, true
		}
		<-w.wake // taken: it is served whatever the context says
		return false, false
	}
}

// refusal says why nothing may be queued. The caller holds the mutex.
func (l *Log) refusal(op string) error {
	if l.closed {
		return l.pathError(op, errClosed)
	}
	return l.failed
}

// enqueue adds a waiter, and makes it the leader when there is none. The caller
// holds the mutex.
func (l *Log) enqueue(w *waiter) (lead bool) {
	l.queue.push(w)
	l.queued.Add(1)
	if l.leading {
		return false
	}
	l.leading = true
	w.state = leader
	return true
}

// withdraw takes a waiter that gives up out of the queue, unless a leader has
// taken it. When it was just chosen to lead, the lead goes on to the next.
func (l *Log) withdraw(w *waiter) bool {
	l.mu.Lock()
	if w.state == taken {
		l.mu.Unlock()
		return false
	}
	chosen := w.state == leader
	l.queue.remove(w)
	l.queued.Add(-1)
	var next *waiter
	if chosen {
		next = l.nextLeader()
	}
	l.mu.Unlock()
	if chosen {
		<-w.wake // its token, which is there or about to be
	}
	if next != nil {
		next.wake <- struct{}{}
	}
	return true
}

// nextLeader chooses the head of the queue to lead, nil when it is empty. The
// caller holds the mutex, and wakes the one chosen after it has let go of it.
func (l *Log) nextLeader() *waiter {
	next := l.queue.head
	if next == nil {
		l.leading = false
		return nil
	}
	next.state = leader
	return next
}

// control runs f with the lead, after what was queued before.
func (l *Log) control(op string, f func() error) error {
	w := l.spare.get()
	w.control = func() error {
		if l.failed != nil {
			return l.failed
		}
		return f()
	}
	l.mu.Lock()
	if err := l.refusal(op); err != nil {
		l.mu.Unlock()
		l.spare.put(w)
		return err
	}
	lead := l.enqueue(w)
	l.mu.Unlock()
	return l.finish(w, lead)
}

// finish waits for the lead and runs the waiter's function. Functions are never
// taken into a group, so that the lead always comes.
func (l *Log) finish(w *waiter, lead bool) error {
	if !lead {
		<-w.wake
	}
	l.lead(w)
	err := w.err
	l.spare.put(w)
	return err
}

// lead does the work of the waiter at the head of the queue, and of those behind
// it, and hands on the lead.
func (l *Log) lead(w *waiter) {
	if w.control == nil {
		l.gather()
	}
	group, size := l.take()
	var err error
	switch {
	case w.control != nil:
		err = w.control()
	case l.failed != nil: // leaders alone write it
		err = l.failed
	default:
		err = l.commit(group, size)
	}
	sealed := l.sealed
	l.sealed = nil
	l.retire(w, group, err)
	if l.opts.OnRotate != nil {
		for _, info := range sealed {
			l.opts.OnRotate(info)
		}
	}
}

const (
	// gatherPatience is how many times in a row a leader yields in vain.
	gatherPatience = 4
	// gatherLimit is after what time it does not yield again: the processors
	// belong to goroutines that compute.
	gatherLimit = time.Millisecond
)

// gather lets the appends that are about to come join the group: after a sync,
// those who waited for it are just being woken. Writing for the first that
// returns would make all others wait for the next sync, and go on to serve them
// in two halves. It yields only while that brings more of them, so that a lone
// append is not delayed.
func (l *Log) gather() {
	n := l.queued.Load()
	if n >= l.herd {
		return
	}
	start := time.Now()
	for vain := 0; n < l.herd && vain < gatherPatience; vain++ {
		runtime.Gosched()
		m := l.queued.Load()
		if m > n {
			vain = -1
		}
		n = m
		if time.Since(start) > gatherLimit {
			return
		}
	}
}

// take moves the waiters that go into one group out of the queue: one with a
// function alone, or those with records up to the next function.
func (l *Log) take() (group waiterList, size int64) {
	limit := min(maxGroup, l.opts.room())
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.queue.head; w != nil; w = l.queue.head {
		first := group.head == nil
		if !first && (w.control != nil || size+w.size > limit) {
			break
		}
		l.queue.remove(w)
		l.queued.Add(-1)
		w.state = taken
		group.push(w)
		size += w.size
		if w.control != nil {
			break
		}
	}
	return group, size
}

// commit writes a group and makes it durable. The caller leads.
func (l *Log) commit(group waiterList, size int64) error {
	if l.off+size > segmentHeaderSize+l.opts.room() && l.off > segmentHeaderSize {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if err := l.write(group); err != nil {
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

// write encodes a group behind the last record and writes it.
func (l *Log) write(group waiterList) error {
	l.buf = l.buf[:0]
	seq := l.seq
	for w := group.head; w != nil; w = w.next {
		w.pos = Position{Segment: l.seg.index, Offset: l.off + int64(len(l.buf)), Seq: seq}
		for i, p := range w.records {
			at := l.off + int64(len(l.buf))
			h := recordHeader{length: len(p), more: i < len(w.records)-1, seq: seq,
				behind: uint32(at - l.synced), payload: w.sums[i]}
			l.buf = appendRecord(l.buf, h, p, l.seg.seed, at)
			seq++
		}
	}
	if err := writeFull(l.file, l.buf, l.off); err != nil {
		return err
	}
	l.off += int64(len(l.buf))
	l.seq = seq
	return nil
}

// zeros are written ahead of the records, a piece at a time.
var zeros [64 << 10]byte

// aheadFactor is how many times larger than a group the zeros ahead must be for
// writing them to cost less than the cheaper syncs save.
const aheadFactor = 16

// extend keeps the end of the file ahead of the records, see
// [Options.Ahead]. On a disk that is full it does without.
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
	// What is in a file that the log's name does not lead to is durable for nobody.
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

// retire publishes what the leader did, wakes its group and hands on the lead.
func (l *Log) retire(own *waiter, group waiterList, err error) {
	l.mu.Lock()
	n := l.account(group, err)
	l.herd = n + l.queued.Load()
	if err != nil && l.failed == nil {
		l.failed = fmt.Errorf("appendlog: the log failed before: %w", err)
	}
	next := l.nextLeader()
	l.mu.Unlock()

	for w := group.head; w != nil; {
		follower := w
		w = w.next // before the waiter is somebody else's
		if follower.err = err; err != nil {
			follower.pos = Position{}
		}
		follower.prev, follower.next = nil, nil
		if follower != own {
			follower.wake <- struct{}{}
		}
	}
	if next != nil { // last, so that it finds those it should gather awake
		next.wake <- struct{}{}
	}
}

// account counts a group and moves the end of the log. The caller leads and
// holds the mutex.
func (l *Log) account(group waiterList, err error) (waiters int64) {
	for w := group.head; w != nil; w = w.next {
		waiters++
		if err != nil || w.control != nil {
			continue
		}
		l.stats.Records += uint64(len(w.records))
		for _, p := range w.records {
			l.stats.Bytes += uint64(len(p))
		}
	}
	if err == nil && group.head.control == nil {
		l.stats.Groups++
		l.stats.LargestGroup = max(l.stats.LargestGroup, int(waiters))
		l.end = Position{Segment: l.seg.index, Offset: l.off, Seq: l.seq}
	}
	return waiters
}
