// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// waitArg is what io_uring_enter(2) reads during a wait. It lives on the heap
// and belongs to the completion side.
type waitArg struct {
	arg abi.GeteventsArg
	ts  abi.Timespec
}

// WaitOptions select what [Ring.Wait] waits for, and for how long.
type WaitOptions struct {
	// Count is the number of completions to wait for, at least; 0 does not
	// wait but runs pending task work. On a ring with CQEMixed it counts slots
	// of the CQ (see [Ring.Ready]).
	Count int
	// NoSubmit does not use the submission side, so that another goroutine may use it
	// meanwhile. Published is a count that [Ring.Publish] returned. Wait submits that
	// many published entries all the same, less those that another call has submitted
	// since.
	NoSubmit  bool
	Published int
	// Brief promises that submitting does not block. Wait then submits with a raw
	// system call, without entering the scheduler, and waits for Count completions with
	// a second call, unless they have arrived. Brief has no effect with a time or
	// Registered.
	Brief bool
	// Timeout limits the wait; 0 means no limit, and a negative timeout ends the wait
	// at once. (5.11)
	Timeout time.Duration
	// Deadline limits the wait. It is an absolute time of the ring's clock (see
	// [Ring.SetClock]), counted from the clock's zero; 0 means no limit. It replaces
	// Timeout. (6.12; EINVAL before)
	Deadline time.Duration
	// MinWait is a time in whole microseconds, up to one hour. When it is over, any
	// completion ends the wait; without a timeout the wait ends even if there is no
	// completion. It is useful only with Count > 1. (6.12, FeatMinTimeout)
	MinWait time.Duration
	// Registered, when not nil, names a slot of the wait region (see
	// [Ring.RegisterWaitRegion]) that holds the times instead of the
	// fields above. (6.13)
	Registered *WaitSlot
}

// SubmitAndWait submits all filled entries and waits for n completions in the same
// call. It returns how many entries the kernel took; a signal that ends the wait early
// is not an error, so [Ring.Reap] may return fewer completions.
func (r *Ring) SubmitAndWait(n int) (int, error) {
	return r.Wait(WaitOptions{Count: n})
}

// SubmitAndWaitTimeout is like [Ring.SubmitAndWait] and waits for at most d. A timeout is
// not an error.
func (r *Ring) SubmitAndWaitTimeout(n int, d time.Duration) (int, error) {
	return r.Wait(WaitOptions{Count: n, Timeout: max(d, 1)})
}

// Wait submits all filled entries and waits as o specifies. It returns how many entries
// the kernel took, as [Ring.Submit] does. If the kernel took fewer entries than there
// were, Wait has not waited. Neither a timeout nor an interrupted wait is an error.
// Wait enters the scheduler (entersyscall), except to submit with Brief.
//
// Errors: those of Submit; EBADR when completions were lost (see
// [Ring.CQDropped]); [errors.ErrUnsupported] when the kernel lacks what an
// option needs.
func (r *Ring) Wait(o WaitOptions) (int, error) {
	var n, flags uint32
	var err error
	if o.NoSubmit {
		n = r.sq.atMost(uint32(max(o.Published, 0)))
	} else if n, flags, err = r.publish(); err != nil {
		return 0, err
	}
	r.noteOverflow()
	flags = flags&^enterNeeded | abi.IORING_ENTER_GETEVENTS | r.enterFlags
	count := uint32(o.Count) + r.cq.deferred
	var done int
	var errno syscall.Errno
	if o.Registered != nil {
		flags |= abi.IORING_ENTER_EXT_ARG | abi.IORING_ENTER_EXT_ARG_REG
		done, errno = sys.EnterAt(r.enterFD, n, count, flags, o.Registered.offset, sys.Size[abi.RegWait]())
	} else {
		arg, size, more, err := r.prepareWait(&o)
		if err != nil {
			return 0, err
		}
		if o.Brief && arg == nil {
			r.cq.calls.Next()
			done, errno = sys.EnterRawFor(r.enterFD, uintptr(n), uintptr(r.cq.deferred), uintptr(flags))
			if errno == 0 && done == int(n) && r.Ready() < o.Count {
				_, errno = sys.Enter(r.enterFD, 0, count, flags, nil, 0)
				if done > 0 {
					errno = 0 // entries that were taken hide it, as in one call
				}
			}
		} else {
			done, errno = sys.Enter(r.enterFD, n, count, flags|more, arg, size)
		}
	}
	switch {
	case errno == 0:
		return done, nil
	case errno == syscall.EINTR || errno == sys.ETIME:
		return 0, nil // entries that were taken would hide either
	}
	return 0, sys.Error("io_uring_enter", errno)
}

// prepareWait fills the argument of a wait with times.
func (r *Ring) prepareWait(o *WaitOptions) (arg sysPointer, size uintptr, flags uint32, err error) {
	if o.Timeout == 0 && o.Deadline == 0 && o.MinWait <= 0 {
		return nil, 0, 0, nil
	}
	if r.features&FeatExtArg == 0 {
		return nil, 0, 0, errNeedExtArg
	}
	if o.MinWait > 0 && r.features&FeatMinTimeout == 0 {
		return nil, 0, 0, errNeedMinTimeout
	}
	w := r.waitArg
	w.arg = abi.GeteventsArg{MinWaitUsec: minWaitMicros(o.MinWait)}
	flags = abi.IORING_ENTER_EXT_ARG
	d := o.Timeout
	if o.Deadline != 0 {
		d = o.Deadline
		flags |= abi.IORING_ENTER_ABS_TIMER
	}
	if d != 0 {
		w.ts = timespec(max(d, 1))
		w.arg.Ts = sys.Addr(&w.ts)
	}
	return sys.Pointer(&w.arg), sys.Size[abi.GeteventsArg](), flags, nil
}

// minWaitMicros encodes a minimum wait, rounded up so that a short one is not
// lost.
func minWaitMicros(d time.Duration) uint32 {
	d = min(max(d, 0), time.Hour)
	return uint32((d + time.Microsecond - 1) / time.Microsecond)
}

var errNeedMinTimeout = unsupported("MinWait needs Linux 6.12 (IORING_FEAT_MIN_TIMEOUT)")

var errNeedExtArg = unsupported("a wait with a timeout needs Linux 5.11 (IORING_FEAT_EXT_ARG)")

// unsupportedError is an error that matches errors.ErrUnsupported.
type unsupportedError string

func unsupported(what string) error { return unsupportedError(what) }

func (e unsupportedError) Error() string        { return "uring: " + string(e) }
func (e unsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

// WaitRegion is memory shared with the kernel that holds the arguments of
// waits, so that a wait copies nothing. It belongs to its ring and is freed
// with it.
type WaitRegion struct {
	slots []abi.RegWait
}

// WaitSlot is one set of arguments in a [WaitRegion].
type WaitSlot struct {
	reg    *abi.RegWait
	offset uintptr
}

// RegisterWaitRegion gives a ring opened with Disabled, before [Ring.Enable],
// a region of n slots. (6.13)
func (r *Ring) RegisterWaitRegion(n int) (*WaitRegion, error) {
	if n <= 0 {
		return nil, errors.New("uring: a wait region needs at least one slot")
	}
	mem, err := sys.MapAnon(n*int(sys.Size[abi.RegWait]()), false)
	if err != nil {
		return nil, err
	}
	desc := &abi.RegionDesc{UserAddr: mem.Addr(), Size: uint64(mem.Size()), Flags: abi.IORING_MEM_REGION_TYPE_USER}
	arg := &abi.MemRegionReg{RegionUptr: sys.Addr(desc), Flags: abi.IORING_MEM_REGION_REG_WAIT_ARG}
	_, err = r.register(OpRegisterMemRegion, sys.Pointer(arg), 1)
	keepAlive(desc)
	if err != nil {
		return nil, errors.Join(err, mem.Unmap())
	}
	r.extra = append(r.extra, mem)
	return &WaitRegion{sys.Slice[abi.RegWait](mem, 0, n)}, nil
}

// Slot returns slot i for [WaitOptions.Registered]. A slot serves one wait at a
// time, and none after the ring was closed.
func (w *WaitRegion) Slot(i int) *WaitSlot {
	return &WaitSlot{&w.slots[i], uintptr(i) * sys.Size[abi.RegWait]()}
}

// Set fills the slot. timeout limits the wait; 0 means no limit, and a negative timeout
// ends the wait at once. minWait is as in [WaitOptions].
func (s *WaitSlot) Set(timeout, minWait time.Duration) {
	*s.reg = abi.RegWait{MinWaitUsec: minWaitMicros(minWait)}
	if timeout != 0 {
		s.reg.Ts = timespec(max(timeout, 1))
		s.reg.Flags = abi.IORING_REG_WAIT_TS
	}
}
