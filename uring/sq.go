// SPDX-License-Identifier: MIT

package uring

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// SQE returns the next free entry of the submission queue, nil when it is
// full: a builder called on nil panics with an error that wraps [ErrSQFull]. The entry
// has the content of its last use: fill it with exactly one builder, which sets every
// byte, before the next call of SQE or Submit. On a ring with SQE128 use [Ring.BigSQE].
func (r *Ring) SQE() *SQE {
	s := &r.sq
	if s.next-s.seen == s.entries {
		if s.seen = s.head.Load(); s.next-s.seen == s.entries {
			return nil
		}
	}
	e := &s.sqes[(s.next&s.mask)<<(s.shift&1)] // &1 spares the check for a shift beyond 31
	s.next++
	return e
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
// submission. With SQPoll it grows as the kernel thread takes entries.
func (r *Ring) SQSpace() int {
	r.sq.seen = r.sq.head.Load()
	return int(r.sq.entries - (r.sq.next - r.sq.seen))
}

// Pending returns the number of entries that SQE has handed out and the kernel has not
// taken. With SQPoll that includes submitted entries.
func (r *Ring) Pending() int {
	return int(r.sq.next - r.sq.head.Load())
}

// Submit hands all filled entries to the kernel and returns how many it took. It may
// block while the kernel starts them (for example to read from a slow device without
// asynchronous support), so it enters the scheduler (entersyscall). An entry that is
// invalid completes with an error and, without SubmitAll, ends the submission early:
// the rest stays pending for the next call.
//
// With SQPoll Submit shows the entries to the kernel thread, wakes the thread if it
// sleeps, and returns how many entries it showed. The thread takes them when it runs
// (see [Ring.Pending] and [Ring.WaitSQ]).
//
// Errors: EAGAIN and ENOMEM when the kernel lacks memory for requests, EBUSY
// when too many completions wait; reap, then try again. EBADFD on a ring that
// is still disabled, EEXIST with SingleIssuer on another thread. EINTR is
// retried.
func (r *Ring) Submit() (int, error) { return r.submit(false) }

// SubmitNoWait is [Ring.Submit] for entries that are known not to block. It makes a raw
// system call, without entering Go's scheduler. That saves time, but if the call blocks
// after all, it holds its P.
func (r *Ring) SubmitNoWait() (int, error) {
	if r.setup&SetupSQPoll != 0 {
		return r.submit(true)
	}
	n := r.sq.show()
	if n == 0 {
		return 0, nil
	}
	r.sq.calls.Next()
	done, errno := sys.EnterRaw(r.enterFD, uintptr(n), uintptr(r.enterFlags))
	if errno != 0 {
		return r.submitFailed(errno)
	}
	return done, nil
}

// submitFailed goes on after SubmitNoWait's first attempt.
func (r *Ring) submitFailed(errno syscall.Errno) (int, error) {
	if errno == syscall.EINTR {
		return r.submit(true)
	}
	return 0, sys.Error("io_uring_enter", errno)
}

// submit publishes the entries and enters the kernel if that is needed, raw or through the scheduler.
func (r *Ring) submit(raw bool) (int, error) {
	n, flags, err := r.publish()
	if err != nil || flags&enterNeeded == 0 {
		return int(n), err
	}
	flags = flags&^enterNeeded | r.enterFlags
	for {
		var done int
		var errno syscall.Errno
		if raw {
			r.sq.calls.Next()
			done, errno = sys.EnterRaw(r.enterFD, uintptr(n), uintptr(flags))
		} else {
			done, errno = sys.Enter(r.enterFD, n, 0, flags, nil, 0)
		}
		if errno == 0 {
			return done, nil
		}
		if errno != syscall.EINTR {
			return 0, sys.Error("io_uring_enter", errno)
		}
	}
}

// enterNeeded is set with the flags for io_uring_enter(2) when submitting needs that
// call. It is not a flag of the kernel.
const enterNeeded = 1 << 31

// publish shows the filled entries to the kernel. It returns how many the next
// io_uring_enter(2) is to take, and the flags for it. With SQPoll it returns how many
// entries were not shown before, and the flags ask for a wakeup if the kernel thread
// sleeps.
func (r *Ring) publish() (n, flags uint32, err error) {
	s := &r.sq
	if r.setup&SetupSQPoll != 0 {
		return r.publishSQPoll()
	}
	if n = s.show(); n != 0 {
		flags = enterNeeded
	}
	return n, flags, nil
}

// show sets the tail that the kernel sees to the last filled entry and returns
// how many entries the kernel has not taken. The tail is exact, so that an enter
// with a count from before takes no entry twice and none that is not filled.
// Without SQPoll the kernel reads it inside of io_uring_enter(2) only, so that the
// store need not be a full barrier, which would cost a tenth of a no-op on amd64.
func (s *sq) show() uint32 {
	s.seen = s.head.Load()
	n := s.next - s.seen
	if n != 0 {
		sys.StoreRelease(s.tail, s.next)
	}
	return n
}

// atMost returns n, or the number of entries that are shown and not taken if that is
// smaller: the kernel does not wait when it takes fewer entries than requested. The
// completion side calls it, possibly concurrently with the submission side.
func (s *sq) atMost(n uint32) uint32 {
	if n == 0 {
		return 0
	}
	head := s.head.Load() // first: the tail never falls behind a head seen before
	return min(n, s.tail.Load()-head)
}

// publishSQPoll publishes entries for the kernel's thread; flags ask for an enter if it sleeps.
func (r *Ring) publishSQPoll() (n, flags uint32, err error) {
	s := &r.sq
	if r.setup&SetupDisabled != 0 {
		// The thread would not sleep before these, nor take them.
		return 0, 0, sys.Error("io_uring_enter", sys.EBADFD)
	}
	n = s.next - s.tail.Load()
	s.tail.Store(s.next)
	s.seen = s.head.Load()
	// The sequentially consistent store above orders the tail before the
	// flags, as the kernel demands. Entries from before may wait as well: the
	// call that was to wake the thread for them may have failed.
	if s.next != s.seen && s.flags.Load()&abi.IORING_SQ_NEED_WAKEUP != 0 {
		flags = enterNeeded | abi.IORING_ENTER_SQ_WAKEUP
	}
	return n, flags, nil
}

// Publish shows all filled entries to the kernel without entering it. It returns how
// many entries the next [Ring.Wait] with NoSubmit has to submit; pass the number as
// [WaitOptions].Published. A caller can fill and publish entries under a lock, and wait
// outside of it. A Submit before that wait makes the count stale, which is harmless:
// the wait submits the published entries that are left, and no entry twice. Do not use
// Publish on rings with SQPoll: Submit does the same there.
func (r *Ring) Publish() (int, error) {
	n, _, err := r.publish()
	return int(n), err
}

// WaitSQ submits all filled entries of a ring with SQPoll and waits until its
// submission queue has room. An interrupted wait is not an error. On other
// rings, which have room after Submit, it does nothing. (5.10)
func (r *Ring) WaitSQ() error {
	if r.setup&SetupSQPoll == 0 {
		return nil
	}
	_, flags, err := r.publish()
	if err != nil {
		return err
	}
	flags = flags&^enterNeeded | abi.IORING_ENTER_SQ_WAIT | r.enterFlags
	_, errno := sys.Enter(r.enterFD, 0, 0, flags, nil, 0)
	if errno == syscall.EINTR {
		errno = 0
	}
	return sys.Error("io_uring_enter", errno)
}
