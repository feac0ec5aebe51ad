// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// rawBytes is how much the kernel may copy or pin in a submission of which the
// scheduler is not told: about 50 µs of work.
const rawBytes = 256 << 10

// startOne enters the operation of a slot and sees to it that it is submitted.
func (l *loop) startOne(s *slot) error {
	l.mu.Lock()
	err := l.refuse()
	if err == nil {
		err = l.enter(s, false)
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	l.submit()
	return nil
}

// start enters the operations of several slots, as one chain if linked.
func (l *loop) start(slots []*slot, linked bool) error {
	l.mu.Lock()
	err := l.refuse()
	if err == nil && linked {
		err = l.reserve(len(slots))
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	for i, s := range slots {
		if err := l.enter(s, linked && i < len(slots)-1); err != nil {
			for _, rest := range slots[i:] { // the ring has failed meanwhile
				rest.Arm()
				l.end(rest, Result{Err: err})
			}
			break
		}
	}
	l.submit()
	return nil
}

var errChainTooLong = errors.New("reactor: chain does not fit into the submission queue: raise Options.Entries")

// enter fills the entries of one operation, or puts it into the backlog of a
// pinned loop whose queue is full. The caller holds mu. From here on the slot
// may be written to by whoever reaps.
func (l *loop) enter(s *slot, linked bool) error {
	need := s.Value.entries()
	if l.opts.Pinned && l.ring.SQSpace() < need {
		s.Arm()
		l.backlog = append(l.backlog, chore{id: s.ID()})
		return nil
	}
	if err := l.makeRoom(need); err != nil {
		return err
	}
	l.fill(s, linked)
	return nil
}

// entries returns how many entries the operation takes.
func (v *entry) entries() int {
	if v.timeout.armed() {
		return 2
	}
	return 1
}

// fill fills the entries of one operation, for which there is room. The caller
// holds mu.
func (l *loop) fill(s *slot, linked bool) {
	v := &s.Value
	sqe := l.ring.SQE()
	*sqe = v.op.SQE
	sqe.SetUserData(uint64(s.ID()))
	if linked {
		sqe.SetFlags(uring.SQELink)
	}
	l.pending = append(l.pending, s.ID())
	l.bytes += v.op.Bytes
	if v.timeout.armed() {
		sqe.SetFlags(uring.SQELink)
		v.timeout.enter(l.ring.SQE(), s.ID())
		l.pending = append(l.pending, 0)
	}
	s.Arm()
}

// makeRoom sees to it that n entries fit. It may let go of mu and take it
// again. On a pinned loop only the thread may call it.
func (l *loop) makeRoom(n int) error {
	for l.failed == nil && l.ring.SQSpace() < n {
		if l.opts.Pinned {
			l.enterNow()
		} else {
			l.flush()
		}
		if l.ring.SQSpace() < n {
			l.mu.Unlock()
			l.reap()
			runtime.Gosched() // the kernel refuses entries for now
			l.mu.Lock()
		}
	}
	return l.failed
}

// reserve waits until n entries fit, which must be one submission.
func (l *loop) reserve(n int) error {
	if n > l.opts.Entries {
		return errChainTooLong
	}
	if !l.opts.Pinned {
		return l.makeRoom(n)
	}
	for l.ring.SQSpace() < n {
		if err := l.refuse(); err != nil {
			return err
		}
		l.wakeLocked()
		l.mu.Unlock()
		<-l.space // the thread takes entries
		l.mu.Lock()
		l.space.put() // another chain may wait too
	}
	return nil
}

// submit sees to it that the pending entries reach the kernel. The caller
// holds mu, which is released.
func (l *loop) submit() {
	if l.opts.Pinned {
		l.wakeLocked()
		l.mu.Unlock()
		return
	}
	if len(l.pending) < l.inKernel() && !l.delays.starving() {
		// The device has work: others that are ready get the chance to join.
		if l.leading {
			l.mu.Unlock()
			return
		}
		l.leading = true
		l.mu.Unlock()
		l.delays.yield()
		l.mu.Lock()
		l.leading = false
	}
	l.flush()
	l.mu.Unlock()
	l.reap()
}

// inKernel returns about how many operations the kernel has. The caller holds
// mu.
func (l *loop) inKernel() int { return l.table.Held() - len(l.pending) }

// flush hands the pending entries of a shared loop to the kernel. The caller
// holds mu.
func (l *loop) flush() {
	for len(l.pending) > 0 && l.failed == nil {
		submit := l.ring.SubmitNoWait
		if l.bytes > rawBytes {
			submit = l.ring.Submit
		}
		n, err := submit()
		l.stats.enters.Add(1)
		l.taken(n)
		if err != nil && !passing(err) {
			l.fail(err)
			return
		}
		if err != nil || n == 0 {
			l.refusal()
			return
		}
	}
}

// refusal remembers that the kernel does not take entries for now: it is out
// of memory for requests, or too many completions wait. Whoever reaps flushes
// again, and so does a timer, because nothing may be left to be reaped.
func (l *loop) refusal() {
	if !l.refused.Swap(true) {
		time.AfterFunc(time.Millisecond, l.resume)
	}
}

// resume is what the timer does.
func (l *loop) resume() {
	l.resumeNow()
	l.reap()
}

// resumeNow flushes what the kernel refused before.
func (l *loop) resumeNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused.Swap(false) && !l.gone {
		l.flush()
	}
}

// passing says whether an error of a submission goes away by itself.
func passing(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOMEM)
}

// taken removes the first n pending entries, which the kernel has.
func (l *loop) taken(n int) {
	if n <= 0 {
		return
	}
	l.stats.submitted.Add(uint64(n))
	l.pending = l.pending[:copy(l.pending, l.pending[n:])]
	if len(l.pending) == 0 {
		l.bytes = 0
	}
}

// fail ends all operations that the kernel has not taken and refuses new ones.
// The caller holds mu.
func (l *loop) fail(err error) {
	if l.failed != nil {
		return
	}
	l.failed = fmt.Errorf("reactor: ring failed: %w", err)
	l.opts.Logger.Error("io_uring failed; operations on it end with this error", "error", err)
	ids := l.pending
	for _, c := range l.backlog {
		ids = append(ids, c.id)
	}
	l.pending, l.backlog = nil, nil
	for _, id := range ids {
		if s := l.table.Lookup(id); s != nil {
			l.end(s, Result{Err: l.failed})
		}
	}
	l.calls.kick()
	l.wakeLocked()
	l.room.put()
	l.idle.put()
	l.space.put()
}

// control enters an entry that belongs to no operation. The caller holds mu.
func (l *loop) control(e *uring.SQE, tag inflight.ID) {
	if l.makeRoom(1) == nil {
		*l.ring.SQE() = *e.SetUserData(uint64(tag))
		l.pending = append(l.pending, 0)
	}
}
