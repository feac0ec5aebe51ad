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
func (a *Log) submit(ctx context.Context, w *waiter) (Position, error) {
	a.mu.Lock()
	if err := a.refusal("append"); err != nil {
		a.mu.Unlock()
		a.spare.put(w)
		return Position{}, err
	}
	lead := a.enqueue(w)
	a.mu.Unlock()
	if !lead {
		var withdrawn bool
		if lead, withdrawn = a.wait(ctx, w); withdrawn {
			a.spare.put(w)
			return Position{}, ctx.Err()
		}
	}
	if lead {
		a.lead(w)
	}
	pos, err := w.pos, w.err
	a.spare.put(w)
	return pos, err
}

// wait returns when the waiter's group is done, it is to lead, or it gave up.
func (a *Log) wait(ctx context.Context, w *waiter) (lead, withdrawn bool) {
	done := ctx.Done()
	if done == nil {
		<-w.wake
		return w.state == leader, false
	}
	select {
	case <-w.wake:
		return w.state == leader, false
	case <-done:
		if a.withdraw(w) {
			return false, true
		}
		<-w.wake // taken: it is served whatever the context says
		return false, false
	}
}

// refusal says why nothing may be queued. The caller holds the mutex.
func (a *Log) refusal(op string) error {
	if a.closed {
		return a.pathError(op, errClosed)
	}
	return a.failed
}

// enqueue adds a waiter, and makes it the leader when there is none. The caller
// holds the mutex.
func (a *Log) enqueue(w *waiter) (lead bool) {
	a.queue.push(w)
	a.queued.Add(1)
	if a.leading {
		return false
	}
	a.leading = true
	w.state = leader
	return true
}

// withdraw takes a waiter that gives up out of the queue, unless a leader has
// taken it. When it was just chosen to lead, the lead goes on to the next.
func (a *Log) withdraw(w *waiter) bool {
	a.mu.Lock()
	if w.state == taken {
		a.mu.Unlock()
		return false
	}
	chosen := w.state == leader
	a.queue.remove(w)
	a.queued.Add(-1)
	var next *waiter
	if chosen {
		next = a.nextLeader()
	}
	a.mu.Unlock()
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
func (a *Log) nextLeader() *waiter {
	next := a.queue.head
	if next == nil {
		a.leading = false
		return nil
	}
	next.state = leader
	return next
}

// control runs f with the lead, after what was queued before.
func (a *Log) control(op string, f func() error) error {
	w := a.spare.get()
	w.control = func() error {
		if a.failed != nil {
			return a.failed
		}
		return f()
	}
	a.mu.Lock()
	if err := a.refusal(op); err != nil {
		a.mu.Unlock()
		a.spare.put(w)
		return err
	}
	lead := a.enqueue(w)
	a.mu.Unlock()
	return a.finish(w, lead)
}

// finish waits for the lead and runs the waiter's function. Functions are never
// taken into a group, so that the lead always comes.
func (a *Log) finish(w *waiter, lead bool) error {
	if !lead {
		<-w.wake
	}
	a.lead(w)
	err := w.err
	a.spare.put(w)
	return err
}

// lead does the work of the waiter at the head of the queue, and of those behind
// it, and hands on the lead.
func (a *Log) lead(w *waiter) {
	if w.control == nil {
		a.gather()
	}
	group, size := a.take()
	var err error
	switch {
	case w.control != nil:
		err = w.control()
	case a.failed != nil: // leaders alone write it
		err = a.failed
	default:
		err = a.commit(group, size)
	}
	sealed := a.sealed
	a.sealed = nil
	a.retire(w, group, err)
	if a.opts.OnRotate != nil {
		for _, info := range sealed {
			a.opts.OnRotate(info)
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
func (a *Log) gather() {
	n := a.queued.Load()
	if n >= a.herd {
		return
	}
	start := time.Now()
	for vain := 0; n < a.herd && vain < gatherPatience; vain++ {
		runtime.Gosched()
		m := a.queued.Load()
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
func (a *Log) take() (group waiterList, size int64) {
	limit := min(maxGroup, a.opts.SegmentSize-segmentHeaderSize)
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := a.queue.head; w != nil; w = a.queue.head {
		first := group.head == nil
		if !first && (w.control != nil || size+w.size > limit) {
			break
		}
		a.queue.remove(w)
		a.queued.Add(-1)
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
func (a *Log) commit(group waiterList, size int64) error {
	if a.off+size > a.opts.SegmentSize && a.off > segmentHeaderSize {
		if err := a.rotate(); err != nil {
			return err
		}
	}
	if err := a.write(group); err != nil {
		return err
	}
	if a.opts.Sync == SyncNone {
		return nil
	}
	if err := a.extend(size); err != nil {
		return err
	}
	return a.sync()
}

// write encodes a group behind the last record and writes it.
func (a *Log) write(group waiterList) error {
	a.buf = a.buf[:0]
	seq := a.seq
	for w := group.head; w != nil; w = w.next {
		w.pos = Position{Segment: a.seg.index, Offset: a.off + int64(len(a.buf)), Seq: seq}
		for i, p := range w.records {
			at := a.off + int64(len(a.buf))
			h := recordHeader{length: len(p), more: i < len(w.records)-1, seq: seq,
				behind: uint32(at - a.synced), payload: w.sums[i]}
			a.buf = appendRecord(a.buf, h, p, a.seg.seed, at)
			seq++
		}
	}
	if err := writeFull(a.file, a.buf, a.off); err != nil {
		return err
	}
	a.off += int64(len(a.buf))
	a.seq = seq
	return nil
}

// zeros are written ahead of the records, a piece at a time.
var zeros [64 << 10]byte

// aheadFactor is how many times larger than a group the zeros ahead must be for
// writing them to cost less than the cheaper syncs save.
const aheadFactor = 16

// extend keeps the end of the file ahead of the records, see
// [Options.Ahead]. On a disk that is full it does without.
func (a *Log) extend(group int64) error {
	if a.off <= a.written {
		return nil
	}
	a.written = a.off
	if group > a.ahead/aheadFactor {
		return nil
	}
	to := min(a.off+a.ahead, a.opts.SegmentSize)
	for a.written < to {
		n := min(int64(len(zeros)), to-a.written)
		if err := writeFull(a.file, zeros[:n], a.written); err != nil {
			if !noSpace(err) {
				return err
			}
			a.ahead, a.written = 0, a.off
			return a.file.Truncate(a.off)
		}
		a.written += n
	}
	return nil
}

// sync makes the segment durable. The caller leads.
func (a *Log) sync() error {
	start := time.Now()
	if err := a.file.Sync(a.opts.Sync == SyncFull); err != nil {
		return err
	}
	a.synced = a.off
	took := time.Since(start)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Syncs++
	a.stats.SyncTime += took
	a.stats.LongestSync = max(a.stats.LongestSync, took)
	return nil
}

// retire publishes what the leader did, wakes its group and hands on the lead.
func (a *Log) retire(own *waiter, group waiterList, err error) {
	a.mu.Lock()
	n := a.account(group, err)
	a.herd = n + a.queued.Load()
	if err != nil && a.failed == nil {
		a.failed = fmt.Errorf("appendlog: the log failed before: %w", err)
	}
	next := a.nextLeader()
	a.mu.Unlock()

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
func (a *Log) account(group waiterList, err error) (waiters int64) {
	for w := group.head; w != nil; w = w.next {
		waiters++
		if err != nil || w.control != nil {
			continue
		}
		a.stats.Records += uint64(len(w.records))
		for _, p := range w.records {
			a.stats.Bytes += uint64(len(p))
		}
	}
	if err == nil && group.head.control == nil {
		a.stats.Groups++
		a.stats.LargestGroup = max(a.stats.LargestGroup, int(waiters))
		a.end = Position{Segment: a.seg.index, Offset: a.off, Seq: a.seq}
	}
	return waiters
}
