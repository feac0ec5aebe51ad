// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// ErrSQFull is returned where an entry is needed and the SQ has none left;
// submit first.
var ErrSQFull = errors.New("uring: submission queue full")

// Ring is one io_uring. See the package comment for who may call what when.
type Ring struct {
	sq sq
	cq cq

	enterFD    int
	enterFlags uint32
	fd         *sys.FD // nil with RegisteredFDOnly
	registered int     // index of the registered ring, -1

	setup    SetupFlags
	features Features

	mem   []*sys.Region // rings first, then SQEs
	extra []*sys.Region // wait regions and receive areas, freed with the ring
	bufs  []*BufRing    // open buffer rings, closed with the ring

	waitArg *waitArg
}

// sq is the submission side. The kernel moves head, the process tail.
type sq struct {
	head, tail, flags, dropped *atomic.Uint32

	sqes    []abi.SQE
	shift   uint32 // 1 with SQE128
	mask    uint32
	entries uint32

	next uint32 // tail of the entries handed out
	seen uint32 // head as last read
}

// cq is the completion side. The kernel moves tail, the process head.
type cq struct {
	head, tail, overflow, flags *atomic.Uint32

	cqes    []abi.CQE
	shift   uint32 // 1 with CQE32
	mixed   bool
	mask    uint32
	entries uint32

	next    uint32 // head
	flushes uint64
}

// FD returns the descriptor, -1 with RegisteredFDOnly. It is readable when
// completions wait; the ring owns it.
func (r *Ring) FD() int {
	if r.fd == nil {
		return -1
	}
	return r.fd.Int()
}

// SetupFlags returns the flags that the ring was opened with.
func (r *Ring) SetupFlags() SetupFlags { return r.setup }

// Features returns what the kernel said of itself at setup.
func (r *Ring) Features() Features { return r.features }

// SQEntries returns the size of the submission queue.
func (r *Ring) SQEntries() int { return int(r.sq.entries) }

// CQEntries returns the size of the completion queue.
func (r *Ring) CQEntries() int { return int(r.cq.entries) }

// SQFlags returns the flags that the kernel shows in the SQ.
func (r *Ring) SQFlags() SQFlags { return SQFlags(r.sq.flags.Load()) }

// SQDropped returns how many entries the kernel refused because of a bad
// index. It stays 0: the index array never changes.
func (r *Ring) SQDropped() uint32 { return r.sq.dropped.Load() }

// CQOverflow returns how many completions did not find room in the CQ at once.
// The kernel keeps them ([FeatNoDrop]) and [Ring.Reap] fetches them; a value
// that grows says that the CQ is too small.
func (r *Ring) CQOverflow() uint32 { return r.cq.overflow.Load() }

// CQFlushes returns how often Reap had to enter the kernel for completions
// that had overflowed or waited for task work.
func (r *Ring) CQFlushes() uint64 { return r.cq.flushes }

// SetCQFlags sets the flags that the kernel reads in the CQ.
func (r *Ring) SetCQFlags(f CQFlags) { r.cq.flags.Store(uint32(f)) }

// Close frees the ring and its buffer rings. The kernel cancels what is in
// flight, asynchronously: memory of such operations must outlive the call by
// an unknown time, so reap every completion first. A ring that is closed must
// not be used; Close itself may be called again and answers nil.
func (r *Ring) Close() error {
	var errs []error
	for len(r.bufs) > 0 {
		errs = append(errs, r.bufs[len(r.bufs)-1].Close())
	}
	if r.registered >= 0 {
		errs = append(errs, r.UnregisterRingFD())
	}
	for _, m := range r.mem {
		errs = append(errs, m.Unmap())
	}
	if r.fd != nil {
		errs = append(errs, r.fd.Close())
		r.fd = nil
	}
	for _, m := range r.extra {
		errs = append(errs, m.Unmap())
	}
	r.mem, r.extra = nil, nil
	r.enterFD = -1
	r.sq.entries, r.sq.next, r.sq.seen = 0, 0, 0
	return errors.Join(errs...)
}

// register issues one register operation on the ring.
func (r *Ring) register(op RegisterOp, arg sysPointer, n uint32) (int, error) {
	fd, code := r.FD(), uint32(op)
	if r.fd == nil {
		fd, code = r.enterFD, code|abi.IORING_REGISTER_USE_REGISTERED_RING
	}
	if r.mem == nil {
		return 0, sys.Error("io_uring_register "+op.String(), syscall.EBADF)
	}
	v, errno := sys.Register(fd, code, arg, n)
	if errno != 0 {
		return 0, sys.Error("io_uring_register "+op.String(), errno)
	}
	return v, nil
}
