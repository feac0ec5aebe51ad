// SPDX-License-Identifier: MIT

package uring

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// SQE returns the next free entry of the submission queue, nil when it is
// full. The entry keeps what an earlier use left in it: fill it with exactly
// one builder, which sets every byte, before the next call of SQE or Submit.
// On a ring with SQE128 use [Ring.BigSQE].
func (r *Ring) SQE() *SQE {
	s := &r.sq
	if s.next-s.seen == s.entries {
		if s.seen = s.head.Load(); s.next-s.seen == s.entries {
			return nil
		}
	}
	e := &s.sqes[(s.next&s.mask)<<s.shift]
	s.next++
	return (*SQE)(e)
}

// BigSQE returns the next free 128-byte entry of a ring with SQE128, nil when
// the queue is full or the ring has 64-byte entries. Its extension is zeroed.
func (r *Ring) BigSQE() *BigSQE {
	if r.sq.shift == 0 {
		return nil
	}
	at := (r.sq.next & r.sq.mask) << 1
	if r.SQE() == nil {
		return nil
	}
	pair := (*BigSQE)(r.sq.sqes[at : at+2])
	*pair = BigSQE{}
	return pair
}

// SQSpace returns how many entries [Ring.SQE] can hand out before the next
// submission.
func (r *Ring) SQSpace() int {
	r.sq.seen = r.sq.head.Load()
	return int(r.sq.entries - (r.sq.next - r.sq.seen))
}

// Pending returns how many entries were handed out and not yet taken by the
// kernel.
func (r *Ring) Pending() int {
	return int(r.sq.next - r.sq.head.Load())
}

// Submit hands all filled entries to the kernel and returns how many it took.
// It may block while the kernel starts them (for example to read from a slow
// device without asynchronous support), so the scheduler is told. An entry
// that is invalid completes with an error and, without SubmitAll, ends the
// submission early: the rest stays pending for the next call.
//
// Errors: EAGAIN and ENOMEM when the kernel lacks memory for requests, EBUSY
// when too many completions wait; reap, then try again. EBADR when the kernel
// had to drop a completion. EINTR is retried.
func (r *Ring) Submit() (int, error) { return r.submit(false) }

// SubmitNoWait is [Ring.Submit] for entries that are known not to block. It
// does not tell Go's scheduler about the call, which saves time and would hold
// a P if it blocked after all.
func (r *Ring) SubmitNoWait() (int, error) { return r.submit(true) }

func (r *Ring) submit(raw bool) (int, error) {
	n, flags := r.publish()
	if n == 0 && flags&abi.IORING_ENTER_SQ_WAKEUP == 0 {
		return 0, nil
	}
	if r.setup&SetupSQPoll != 0 && flags&abi.IORING_ENTER_SQ_WAKEUP == 0 {
		return int(n), nil // the kernel thread is awake and sees the tail
	}
	for {
		var done int
		var errno syscall.Errno
		if raw {
			done, errno = sys.EnterRaw(r.enterFD, n, 0, flags|r.enterFlags)
		} else {
			done, errno = sys.Enter(r.enterFD, n, 0, flags|r.enterFlags, nil, 0)
		}
		if errno == 0 {
			return done, nil
		}
		if errno != syscall.EINTR {
			return 0, sys.Error("io_uring_enter", errno)
		}
	}
}

// publish shows the filled entries to the kernel. It returns how many wait and
// the flags that submitting them needs.
func (r *Ring) publish() (n, flags uint32) {
	s := &r.sq
	s.tail.Store(s.next)
	if r.setup&SetupSQPoll != 0 {
		// The sequentially consistent store above orders the tail before
		// this load, as the kernel demands.
		if s.flags.Load()&abi.IORING_SQ_NEED_WAKEUP != 0 {
			flags = abi.IORING_ENTER_SQ_WAKEUP
		}
	}
	s.seen = s.head.Load()
	return s.next - s.seen, flags
}

// WaitSQ waits until a ring with SQPoll has room in its submission queue.
// (5.10)
func (r *Ring) WaitSQ() error {
	_, errno := sys.Enter(r.enterFD, 0, 0, abi.IORING_ENTER_SQ_WAIT|r.enterFlags, nil, 0)
	if errno == syscall.EINTR {
		errno = 0
	}
	return sys.Error("io_uring_enter", errno)
}
