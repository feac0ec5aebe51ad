// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// defaultEntries is the SQ size if Options.Entries is 0.
const defaultEntries = 128

// Options describe a ring. The zero value opens a plain ring of
// 128 entries; each field adds what its comment describes.
type Options struct {
	// Entries is the size of the SQ, rounded up to a power of two, at most
	// 32768; 0 means 128.
	Entries uint32
	// CQEntries is the size of the CQ, rounded up to a power of two; 0 means
	// twice the SQ. Multishot operations need more. (CQSIZE, 5.5)
	CQEntries uint32
	// Clamp makes the kernel reduce sizes above its limits instead of returning EINVAL.
	// (5.6)
	Clamp bool

	// SQPoll makes a kernel thread submit. The thread sleeps after SQPollIdle without
	// work, rounded up to whole milliseconds; 0 means the kernel's default, one second.
	// It needs a spare CPU. (5.1; without privileges 5.11)
	SQPoll     bool
	SQPollIdle time.Duration
	// SQPollPinned binds that thread to SQPollCPU. (SQ_AFF, 5.1)
	SQPollPinned bool
	SQPollCPU    uint32
	// AttachWQ shares the worker threads, and with SQPoll the submission
	// thread, of another open ring that has a descriptor. (5.6)
	AttachWQ *Ring

	// IOPoll busy-polls for completions of O_DIRECT I/O on devices with poll
	// queues; nothing else can be submitted. (5.1)
	IOPoll bool
	// HybridIOPoll sleeps for part of the expected time before it polls. It implies
	// IOPoll. (6.13)
	HybridIOPoll bool

	// Disabled opens the ring without starting it: register restrictions, then
	// call [Ring.Enable]. (R_DISABLED, 5.10)
	Disabled bool
	// Restrict limits the ring from its start. It opens the ring disabled and enables
	// it after the restrictions, unless Disabled is set, too. Operations and flags that
	// the kernel does not know are left out. (5.10)
	Restrict *Restrictions
	// SubmitAll continues with the entries after one that is rejected at
	// submission; its completion has the error either way. (5.18)
	SubmitAll bool
	// CoopTaskrun avoids the interrupt that makes a running submitter process
	// completions. Completions wait until the thread that submitted enters the kernel
	// next. Set TaskrunFlag too for a ring that is reaped without waiting. (5.19)
	CoopTaskrun bool
	// TaskrunFlag makes the kernel set [SQTaskrun] while completions wait for the
	// submitting thread to enter the kernel. Needs CoopTaskrun or DeferTaskrun. (5.19)
	TaskrunFlag bool
	// SingleIssuer promises that one thread makes every call: the one that
	// opens the ring, or with Disabled the one that enables it. (6.0)
	SingleIssuer bool
	// DeferTaskrun processes completions only in a wait or [Ring.Reap] on the issuing
	// thread. It implies SingleIssuer and TaskrunFlag. Reap uses the flag to decide
	// whether to enter the kernel. (6.1)
	DeferTaskrun bool

	// SQE128 doubles the entries: see [Ring.BigSQE]. (5.19)
	SQE128 bool
	// CQE32 doubles the completions: see [Ring.ReapBig]. (5.19)
	CQE32 bool
	// CQEMixed allows both sizes of completions. When the CQ overflows, a small
	// one can pass a big one. (6.18)
	CQEMixed bool

	// NoMmap places the rings in memory of the process instead of the
	// kernel's; HugePages asks for huge pages for it. Before 6.10 each of the
	// two areas must be a single page, of either size. (6.5)
	NoMmap    bool
	HugePages bool
	// RegisteredFDOnly opens the ring without a descriptor, usable only on the
	// opening thread, which must also close it. Implies NoMmap. (6.5)
	RegisteredFDOnly bool
	// NoSQArray drops the SQ's index array. (6.6)
	NoSQArray bool

	// NoIOWait keeps waits from counting as iowait (6.15). Older kernels ignore it.
	NoIOWait bool
}

// SetupFlags derives the flags of io_uring_setup(2). It returns an error for a
// combination that no kernel accepts. The error names the option to change.
func (o Options) SetupFlags() (SetupFlags, error) {
	var f SetupFlags
	set := func(on bool, bits SetupFlags) {
		if on {
			f |= bits
		}
	}
	set(o.IOPoll, SetupIOPoll)
	set(o.HybridIOPoll, SetupHybridIOPoll|SetupIOPoll)
	set(o.SQPoll, SetupSQPoll)
	set(o.SQPollPinned, SetupSQAff)
	set(o.CQEntries != 0, SetupCQSize)
	set(o.Clamp, SetupClamp)
	set(o.AttachWQ != nil, SetupAttachWQ)
	set(o.Disabled || o.Restrict != nil, SetupDisabled)
	set(o.SubmitAll, SetupSubmitAll)
	set(o.CoopTaskrun, SetupCoopTaskrun)
	set(o.TaskrunFlag, SetupTaskrunFlag)
	set(o.SQE128, SetupSQE128)
	set(o.CQE32, SetupCQE32)
	set(o.CQEMixed, SetupCQEMixed)
	set(o.SingleIssuer, SetupSingleIssuer)
	set(o.DeferTaskrun, SetupDeferTaskrun|SetupSingleIssuer|SetupTaskrunFlag)
	set(o.NoMmap || o.HugePages, SetupNoMmap)
	set(o.RegisteredFDOnly, SetupRegisteredFDOnly|SetupNoMmap)
	set(o.NoSQArray, SetupNoSQArray)
	return f, errors.Join(f.check(), o.check())
}

func (f SetupFlags) check() error {
	switch {
	case f&SetupSQAff != 0 && f&SetupSQPoll == 0:
		return errors.New("uring: SQPollPinned without SQPoll: set both or neither")
	case f&SetupSQPoll != 0 && f&(SetupDeferTaskrun|SetupCoopTaskrun|SetupTaskrunFlag) != 0:
		return errors.New("uring: SQPoll excludes CoopTaskrun, DeferTaskrun and TaskrunFlag: the kernel thread runs the task work")
	case f&SetupTaskrunFlag != 0 && f&(SetupCoopTaskrun|SetupDeferTaskrun) == 0:
		return errors.New("uring: TaskrunFlag needs CoopTaskrun or DeferTaskrun")
	case f&SetupCQE32 != 0 && f&SetupCQEMixed != 0:
		return errors.New("uring: CQE32 and CQEMixed exclude each other")
	}
	return nil
}

// Limits of the kernel (IORING_MAX_ENTRIES, IORING_MAX_CQ_ENTRIES).
const (
	maxSQEntries = 1 << 15
	maxCQEntries = 2 * maxSQEntries
)

// check checks the fields that the flags do not contain.
func (o *Options) check() error {
	sq, cq := o.sqEntries(), o.CQEntries
	switch {
	case cq != 0 && ceilPow2(min(cq, maxCQEntries)) < ceilPow2(min(sq, maxSQEntries)):
		return fmt.Errorf("uring: %d CQEntries for %d Entries: the completion queue must not be the smaller one", cq, sq)
	case o.SQPollIdle < 0:
		return fmt.Errorf("uring: SQPollIdle is negative: %v", o.SQPollIdle)
	case o.AttachWQ != nil && o.AttachWQ.FD() < 0:
		return errors.New("uring: AttachWQ names a ring without a descriptor: it is closed, or was opened with RegisteredFDOnly")
	}
	return nil
}

// idleMillis returns SQPollIdle in the kernel's unit, where 0 means a second.
func (o *Options) idleMillis() uint32 {
	const most = math.MaxUint32 * time.Millisecond
	return uint32((min(o.SQPollIdle, most) + time.Millisecond - 1) / time.Millisecond)
}

// sqEntries returns the SQ size to ask for.
func (o *Options) sqEntries() uint32 {
	if o.Entries == 0 {
		return defaultEntries
	}
	return o.Entries
}

// ceilPow2 returns the smallest power of two that is at least n.
func ceilPow2(n uint32) uint32 {
	p := uint32(1)
	for p < n && p < 1<<31 {
		p <<= 1
	}
	return p
}
