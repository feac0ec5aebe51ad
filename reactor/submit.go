// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/internal/ringloop"
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
		err = l.enter(s)
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	l.submit()
	return nil
}

// start enters the operations of a group, as one chain if it is one.
func (l *loop) start(g *group) error {
	l.mu.Lock()
	err := l.refuse()
	switch {
	case err != nil:
	case g.chain:
		err = l.enterChain(g)
	default:
		l.enterBatch(g.slots)
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	l.submit()
	return nil
}

// enterBatch enters operations one by one: others' may come between them. The
// caller holds mu.
func (l *loop) enterBatch(slots []*slot) {
	for i, s := range slots {
		if err := l.enter(s); err != nil { // the loop was shut, or has failed, meanwhile
			for _, rest := range slots[i:] {
				rest.Arm()
			}
			l.endAll(slots[i:], err)
			return
		}
	}
}

var (
	errChainTooLong = errors.New("reactor: chain does not fit into the submission queue: raise Options.Entries")
	errChainSQPoll  = errors.New("reactor: a kernel thread that several rings share takes chains of at most 8")
)

// sqpollShare is how many entries at a time a kernel thread that serves several
// rings takes from each (6.18); a chain that goes beyond is split.
// TestChainsStayWholeWithSQPoll sees it.
const sqpollShare = 8

// enterChain enters operations that the kernel must take together. The caller
// holds mu.
func (l *loop) enterChain(g *group) error {
	n := len(g.slots)
	if n > l.size {
		return errChainTooLong // the queue is smaller than asked for
	}
	if l.opts.Pinned && l.crowded(n) {
		for _, s := range g.slots {
			s.Arm()
		}
		l.leaveChore(chore{id: g.slots[0].ID(), chain: g})
		return nil
	}
	room := n
	if l.opts.SQPoll && l.opts.Loops > 1 {
		if n > sqpollShare {
			return errChainSQPoll
		}
		room = l.size // the chain must be the first that the thread finds
	}
	if err := l.makeRoomFor(room); err != nil {
		return err
	}
	for i, s := range g.slots {
		l.fill(s, i < n-1)
	}
	return nil
}

// crowded reports whether n entries of a pinned loop have to wait for the thread,
// because they do not fit or others wait already. The caller holds mu.
func (l *loop) crowded(n int) bool {
	return l.choring || len(l.backlog) > 0 || l.ring.SQSpace() < n
}

// enter fills the entries of one operation, or puts it into the backlog of a
// pinned loop. The caller holds mu. From here on the slot may be written to by
// whoever reaps.
func (l *loop) enter(s *slot) error {
	need := s.Value.entries()
	if l.opts.Pinned && l.crowded(need) {
		s.Arm()
		l.leaveChore(chore{id: s.ID()})
		return nil
	}
	if err := l.makeRoomFor(need); err != nil {
		return err
	}
	l.fill(s, false)
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
	sqe := l.newEntry()
	*sqe = v.op.SQE
	sqe.SetUserData(uint64(s.ID()))
	if linked {
		sqe.SetFlags(uring.SQELink)
	}
	if f := v.op.File; f != nil {
		f.use(sqe)
		l.stats.fixedFiles.Add(1)
	}
	if b := v.op.Buffer; b != nil {
		l.fix(sqe, b)
	}
	l.bytes += v.op.Bytes
	if cancels(v.op.SQE.Raw().Opcode) {
		l.cancels++
	}
	v.cancels = l.cancels
	if v.timeout.armed() {
		sqe.SetFlags(uring.SQELink)
		v.timeout.enter(l.newEntry(), s.ID())
	}
	s.Arm()
}

// newEntry returns an entry to fill, for which there is room. The caller holds
// mu.
func (l *loop) newEntry() *uring.SQE {
	e := l.ring.SQE()
	l.pending = append(l.pending, e)
	return e
}

// control enters an entry that belongs to no operation. The caller holds mu,
// which may be let go meanwhile.
func (l *loop) control(e *uring.SQE, tag inflight.ID) {
	if l.makeRoom(1) == nil {
		*l.newEntry() = *e.SetUserData(uint64(tag))
	}
}

// submit sees to it that the pending entries reach the kernel. The caller
// holds mu, which is released.
func (l *loop) submit() {
	if l.opts.Pinned {
		l.wakeLocked()
		l.mu.Unlock()
		return
	}
	l.turns++
	if l.delays.yields(l.mayGather()) {
		// The device has work: others that are ready get the chance to join.
		if l.leading {
			l.mu.Unlock()
			return
		}
		l.leading = true
		before := l.turns
		l.mu.Unlock()
		took := yield()
		l.mu.Lock()
		l.leading = false
		l.delays.learn(took, int(l.turns-before))
	}
	l.flush()
	l.mu.Unlock()
	l.reap()
}

// mayGather reports whether to wait for company before the pending entries are
// submitted. The caller holds mu.
func (l *loop) mayGather() bool {
	inKernel := l.inKernel()
	if len(l.pending) >= inKernel {
		return false
	}
	return inKernel > shallow || l.turns%glimpse == 0
}

// glimpse is how many submissions pass, where little is in flight, between two
// that wait all the same, to learn whether goroutines have to wait for a P.
const glimpse = 16

// shallow is how many operations in the kernel are too few to wait for company:
// while one waits, the device has nothing to overlap with. With 32 readers of a
// disk, waiting cost 6 % of the rate, and saved nothing.
const shallow = 32

// inKernel returns about how many operations the kernel has. The caller holds
// mu.
func (l *loop) inKernel() int { return l.table.Held() - len(l.pending) }

// flush hands the pending entries of a shared loop to the kernel. The caller
// holds mu.
func (l *loop) flush() {
	for len(l.pending) > 0 && l.failed == nil && !l.gone {
		submit := l.ring.SubmitNoWait
		if l.bytes > rawBytes {
			submit = l.ring.Submit
		}
		l.sign(int32(l.ring.Submitter()))
		n, err := submit()
		l.stats.enters.Add(1)
		l.taken(n)
		if err != nil && !ringloop.Temporary(err) {
			l.fail(err)
			return
		}
		if err != nil || n == 0 {
			l.refusal()
			return
		}
	}
	l.setRefused(false)
}

// sign notes which thread submits what is pending. The caller holds mu.
func (l *loop) sign(thread int32) {
	if thread == 0 {
		return
	}
	for _, e := range l.pending {
		s := l.table.Lookup(inflight.ID(e.Raw().UserData))
		if s != nil && s.Value.thread.Load() != thread {
			s.Value.thread.Store(thread)
		}
	}
}

// taken removes the first n pending entries, which the kernel has. The caller
// holds mu.
func (l *loop) taken(n int) {
	if n <= 0 {
		return
	}
	l.stats.submitted.Add(uint64(n))
	split := n < len(l.pending) && l.pending[n-1].Raw().Flags&linkFlags != 0
	l.pending = l.pending[:copy(l.pending, l.pending[n:])]
	if len(l.pending) == 0 {
		l.bytes = 0
	}
	if split {
		l.orphan()
	}
	l.space.Broadcast()
}

// orphan deals with a chain of which the kernel took a part before it ran out of
// memory. The rest, which is at the head of the queue, would start as a chain of
// its own, whatever becomes of the part that it depends on. It becomes no-ops,
// and its operations end cancelled. A linked timeout that lost its operation
// says so itself; see timeoutDone. The caller holds mu.
func (l *loop) orphan() {
	for _, e := range l.pending {
		linked := e.Raw().Flags&linkFlags != 0
		if s := l.table.Lookup(inflight.ID(e.Raw().UserData)); s != nil {
			s.Value.orphan = true
			s.Arm() // for who looks it up
			e.Nop().SetUserData(uint64(s.ID()))
		}
		if !linked {
			return
		}
	}
}
