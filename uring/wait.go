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

// WaitOptions say what a wait waits for.
type WaitOptions struct {
	// Count is the number of completions to wait for, at least; 0 does not
	// wait but runs pending task work.
	Count int
	// Timeout bounds the wait; 0 means none. (5.11)
	Timeout time.Duration
	// Deadline bounds the wait by a reading of the ring's clock (see
	// [Ring.SetClock]) since its zero; 0 means none. It excludes Timeout.
	// (6.12)
	Deadline time.Duration
	// MinWait: once that time is over, any completion ends the wait. Needs
	// Count > 1 to make sense. (6.12, FeatMinTimeout)
	MinWait time.Duration
	// Registered, when not nil, names a slot of the wait region (see
	// [Ring.RegisterWaitRegion]) that holds the times; the fields above but
	// Count are then ignored. (6.13)
	Registered *WaitSlot
}

// SubmitAndWait submits all filled entries and waits for n completions in the
// same call. It returns how many entries the kernel took; a signal that ends
// the wait early is not an error, so look at what [Ring.Reap] brings.
func (r *Ring) SubmitAndWait(n int) (int, error) {
	return r.Wait(WaitOptions{Count: n})
}

// SubmitAndWaitTimeout is [Ring.SubmitAndWait] with a bound on the wait.
// Running out of time is not an error.
func (r *Ring) SubmitAndWaitTimeout(n int, d time.Duration) (int, error) {
	return r.Wait(WaitOptions{Count: n, Timeout: max(d, 1)})
}

// Wait submits all filled entries and waits as the options say. It returns how
// many entries the kernel took. Neither a timeout nor an interrupted wait is an
// error. The scheduler is told that the call may block.
func (r *Ring) Wait(o WaitOptions) (int, error) {
	n, flags := r.publish()
	if r.setup&SetupSQPoll != 0 && flags&abi.IORING_ENTER_SQ_WAKEUP == 0 {
		n = 0
	}
	flags |= abi.IORING_ENTER_GETEVENTS | r.enterFlags
	var done int
	var errno syscall.Errno
	if o.Registered != nil {
		flags |= abi.IORING_ENTER_EXT_ARG | abi.IORING_ENTER_EXT_ARG_REG
		done, errno = sys.EnterAt(r.enterFD, n, uint32(o.Count), flags, o.Registered.offset, sys.Size[abi.RegWait]())
	} else {
		arg, size, more, err := r.prepareWait(&o)
		if err != nil {
			return 0, err
		}
		done, errno = sys.Enter(r.enterFD, n, uint32(o.Count), flags|more, arg, size)
	}
	switch errno {
	case 0:
		return done, nil
	case syscall.EINTR, syscall.ETIME:
		return 0, nil
	}
	return 0, sys.Error("io_uring_enter", errno)
}

// prepareWait fills the argument of a wait with times.
func (r *Ring) prepareWait(o *WaitOptions) (arg sysPointer, size uintptr, flags uint32, err error) {
	if o.Timeout == 0 && o.Deadline == 0 && o.MinWait == 0 {
		return nil, 0, 0, nil
	}
	if r.features&FeatExtArg == 0 {
		return nil, 0, 0, errNeedExtArg
	}
	w := r.waitArg
	w.arg = abi.GeteventsArg{MinWaitUsec: uint32(o.MinWait / time.Microsecond)}
	flags = abi.IORING_ENTER_EXT_ARG
	d := o.Timeout
	if o.Deadline != 0 {
		d = o.Deadline
		flags |= abi.IORING_ENTER_ABS_TIMER
	}
	if d != 0 {
		w.ts = timespec(d)
		w.arg.Ts = sys.Addr(&w.ts)
	}
	return sys.Pointer(&w.arg), sys.Size[abi.GeteventsArg](), flags, nil
}

var errNeedExtArg = unsupported("a wait with a timeout needs Linux 5.11 (IORING_FEAT_EXT_ARG)")

// unsupportedError is an error that matches errors.ErrUnsupported.
type unsupportedError string

func unsupported(what string) error { return unsupportedError(what) }

func (e unsupportedError) Error() string        { return "uring: " + string(e) }
func (e unsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

func timespec(d time.Duration) abi.Timespec {
	return abi.Timespec{Sec: int64(d / time.Second), Nsec: int64(d % time.Second)}
}
