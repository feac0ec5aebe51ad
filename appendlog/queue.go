// SPDX-License-Identifier: MIT

package appendlog

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// queue is the groups of a log that wait, oldest first. Calls join the last one. The call that
// begins a group leads it: at once if no other call leads, else when the leader before wakes
// it. The log's mutex guards the queue.
type queue struct {
	first, last *group
	leading     bool
	calls       int      // in these groups
	spare       []*group // to be used again
}

// maxSpare is how many groups are kept: one is served while another one waits.
const maxSpare = 2

// begin adds a group, which the caller is to lead.
func (q *queue) begin() *group {
	var g *group
	if n := len(q.spare); n > 0 {
		g, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		g = new(group)
	}
	if g.chosen = !q.leading; !g.chosen && g.lead == nil {
		g.lead = make(chan struct{}, 1)
	}
	q.leading = true
	if g.before = q.last; q.first == nil {
		q.first = g
	} else {
		q.last.next = g
	}
	q.last = g
	return g
}

// remove takes a group out of the queue.
func (q *queue) remove(g *group) {
	if g == q.first {
		q.first = g.next
	} else {
		g.before.next = g.next
	}
	if g == q.last {
		q.last = g.before
	} else {
		g.next.before = g.before
	}
	g.before, g.next = nil, nil
	q.calls -= g.calls
}

// pass chooses the next leader, and returns its group, nil if the queue is empty.
func (q *queue) pass() *group {
	q.leading = q.first != nil
	if q.leading {
		q.first.chosen = true
	}
	return q.first
}

// submit queues the records of a call and returns when they are durable or the append has
// failed. sums are the payloads' checksums: they are computed before, because the mutex
// excludes other appends.
func (l *Log) submit(ctx context.Context, records [][]byte, sums []uint32, size int64) (Position, error) {
	l.mu.Lock()
	if l.closed || l.failed != nil {
		err := l.refusal("append")
		l.mu.Unlock()
		return Position{}, err
	}
	g, leads := l.queue.last, false
	if g == nil || g.control || g.size+size > min(maxGroup, l.opts.room()) {
		g, leads = l.queue.begin(), true
	}
	s := g.add(records, sums, size)
	l.queue.calls++
	if g.calls++; !leads && g.done == nil {
		g.done = make(chan struct{})
	}
	signal := g.done
	if leads {
		signal = g.lead
	}
	waits := !leads || !g.chosen
	l.mu.Unlock()
	if waits && !l.wait(ctx, signal, g, s, leads) {
		return Position{}, ctx.Err()
	}
	if leads {
		return l.serve(g, s, nil)
	}
	return g.position(s), g.err
}

// wait waits for the signal of a call: that it is chosen to lead, or that its group was served. It
// returns false if ctx ended before and the call was withdrawn.
func (l *Log) wait(ctx context.Context, signal chan struct{}, g *group, s span, leads bool) bool {
	end := ctx.Done()
	if end == nil { // a select costs much more
		<-signal
		return true
	}
	select {
	case <-signal:
	case <-end:
		if l.withdraw(g, s, leads) {
			return false
		}
		<-signal // it is served even if the context has ended
	}
	return true
}

// withdraw takes the records of a call out of its group and reports whether it did: it does
// not when the leader has taken the group, or the call was chosen to lead. A group without
// calls leaves the queue.
func (l *Log) withdraw(g *group, s span, leads bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.taken || leads && g.chosen {
		return false
	}
	g.withdraw(s)
	l.queue.calls--
	if leads {
		g.alone = true
	}
	if g.calls == 0 && !g.chosen {
		l.queue.remove(g)
	}
	return true
}

// refusal returns why nothing may be queued. The caller holds the mutex.
func (l *Log) refusal(op string) error {
	if l.closed {
		return l.pathError(op, errClosed)
	}
	return l.failed
}

// control runs f as the leader, after all calls that were queued before.
func (l *Log) control(op string, f func() error) error {
	l.mu.Lock()
	if err := l.refusal(op); err != nil {
		l.mu.Unlock()
		return err
	}
	return l.lead(func() error {
		if l.failed != nil {
			return l.failed
		}
		return f()
	})
}

// lead queues a function and runs it as the leader. The caller holds the mutex, which lead
// unlocks.
func (l *Log) lead(f func() error) error {
	g := l.queue.begin()
	g.control = true
	waits := !g.chosen
	l.mu.Unlock()
	if waits {
		<-g.lead
	}
	_, err := l.serve(g, span{}, f)
	return err
}

// serve serves a group whose turn it is, and passes the lead to the next one. It returns the result
// of the call with the span s.
func (l *Log) serve(g *group, s span, control func() error) (Position, error) {
	if control == nil {
		l.gather()
	}
	l.mu.Lock()
	g.taken = true
	l.queue.remove(g)
	l.mu.Unlock()
	switch {
	case control != nil:
		g.err = control()
	case l.failed != nil: // only leaders write it
		g.err = l.failed
	case g.calls > 0:
		g.err = l.commit(g)
	}
	pos, err := g.position(s), g.err
	sealed := l.sealed
	l.sealed = nil
	l.retire(g)
	if l.opts.OnRotate != nil {
		for _, info := range sealed {
			l.opts.OnRotate(info)
		}
	}
	return pos, err
}

const (
	// maxIdle is how many times in a row gather yields without a new call. With 2, gather ended
	// before a woken goroutine had got a processor of a busy machine;
	// results/notes/speed-files.md has the measurements.
	maxIdle = 8
	// maxGather limits the time of gather: no further yield begins after it. A long yield means
	// that computing goroutines occupy the processors.
	maxGather = time.Millisecond
)

// gather yields so that calls can join the group before its leader takes it. After a sync, the
// goroutines that waited for it have been woken but have not run yet. Without gather the
// leader would make the next sync for the first of them only, and the others would wait
// for the one after that. gather yields only while calls come, so a goroutine that is
// alone is not delayed.
func (l *Log) gather() {
	n := l.waiting()
	if n >= l.expected {
		return
	}
	start := time.Now()
	for idle := 0; n < l.expected && idle < maxIdle && time.Since(start) <= maxGather; idle++ {
		runtime.Gosched()
		before := n
		if n = l.waiting(); n > before {
			idle = -1
		}
	}
}

// waiting returns how many appends wait.
func (l *Log) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.calls
}

// retire publishes the result of a group, wakes its calls and passes the lead on. The next
// leader is woken last, so that gather finds the other goroutines awake.
func (l *Log) retire(g *group) {
	l.mu.Lock()
	if g.err == nil && g.calls > 0 {
		l.account(g)
	}
	if g.err != nil && l.failed == nil {
		l.failed = fmt.Errorf("appendlog: the log failed before: %w", g.err)
		go l.opts.Logger.Error("appendlog: the log failed; close it and open it again", "error", g.err) // without mu
	}
	l.expected = g.calls + l.queue.calls
	next, done := l.queue.pass(), g.done
	if len(l.queue.spare) < maxSpare && cap(g.buf) <= maxGroup && !g.withdrawn {
		l.queue.spare = append(l.queue.spare, g.reuse())
	}
	l.mu.Unlock()
	if done != nil {
		close(done)
	}
	switch {
	case next == nil:
	case next.alone:
		go func() { _, _ = l.serve(next, span{}, nil) }() // the calls return the error
	default:
		next.lead <- struct{}{}
	}
}

// account counts a group and moves the end of the log. The caller leads and holds the mutex.
func (l *Log) account(g *group) {
	l.stats.Records += l.seq - g.pos.Seq
	l.stats.Bytes += g.bytes
	l.stats.Groups++
	l.stats.LargestGroup = max(l.stats.LargestGroup, g.calls)
	l.end = Position{Segment: l.seg.index, Offset: l.off, Seq: l.seq}
}
