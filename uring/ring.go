// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// ErrSQFull is returned when the SQ has no free entry: submit first. A builder that is
// called on a nil entry panics with an error that wraps it.
var ErrSQFull = errors.New("uring: submission queue full")

// Ring is one io_uring. The package comment describes which methods may be called concurrently.
type Ring struct {
	sq sq
	cq cq

	enterFD    int
	enterFlags uint32
	fd         *sys.FD // nil with RegisteredFDOnly
	registered int     // index of the registered ring, -1
	thread     int     // to which that index belongs
	tagged     bool    // files or buffers have tags
	messaged   atomic.Bool

	setup    SetupFlags
	features Features

	cqesOff, arrayOff uint32 // places in the first region

	mem   []*sys.Region // rings first, then SQEs
	extra []*sys.Region // wait regions and receive areas, freed with the ring
	bufs  []*BufRing    // open buffer rings, closed with the ring

	retired []*BufRing // closed; their buffers may be in use

	waitArg *waitArg
}

// sq is the submission side. The kernel moves head, the process tail.
type sq struct {
	head, tail, flags *atomic.Uint32

	sqes    []SQE
	shift   uint32 // 1 with SQE128
	mask    uint32
	entries uint32

	next uint32 // tail of the entries handed out
	seen uint32 // head as last read
	base uint32 // head when the ring was opened

	calls sys.RawCalls
}

// cq is the completion side. The kernel moves tail, the process head.
type cq struct {
	head, tail, overflow, flags *atomic.Uint32

	cqes    []CQE
	plain   []CQE  // the same; nil where a completion can take two places
	shift   uint32 // 1 with CQE32
	mixed   bool
	mask    uint32
	entries uint32

	next      uint32 // head, with the deferred slots
	ended     uint32 // completions after which none of the same entry follows
	deferMost uint32 // how many slots may be deferred, see Ring.DeferCQHead
	deferred  uint32 // how many are
	flushes   uint64
	overflows uint32

	calls sys.RawCalls
}

// FD returns the descriptor, -1 with RegisteredFDOnly. It is readable when
// completions wait; the ring owns it.
func (r *Ring) FD() int {
	if r.fd == nil {
		return -1
	}
	return r.fd.Int()
}

// SetupFlags returns the flags that the ring was opened with, without
// SetupDisabled once it has been enabled.
func (r *Ring) SetupFlags() SetupFlags { return r.setup }

// Features returns the feature bits that the kernel reported at setup.
func (r *Ring) Features() Features { return r.features }

// SQEntries returns the size of the submission queue.
func (r *Ring) SQEntries() int { return int(r.sq.entries) }

// CQEntries returns the size of the completion queue.
func (r *Ring) CQEntries() int { return int(r.cq.entries) }

// SQFlags returns the flags that the kernel shows in the SQ.
func (r *Ring) SQFlags() SQFlags { return SQFlags(r.sq.flags.Load()) }

// CQOverflow returns how often Reap or a wait found that completions had
// overflowed the CQ. The kernel keeps them ([FeatNoDrop]) until then. A growing
// value means that the CQ is too small. It belongs to the
// completion side.
func (r *Ring) CQOverflow() uint32 { return r.cq.overflows }

// CQDropped returns how many completions were lost, because they overflowed the
// CQ and the kernel had no memory to keep them.
func (r *Ring) CQDropped() uint32 { return r.cq.overflow.Load() }

// CQFlushes returns how often Reap had to enter the kernel for completions
// that had overflowed or waited for task work. It belongs to the completion
// side.
func (r *Ring) CQFlushes() uint64 { return r.cq.flushes }

// SetCQFlags sets the flags that the kernel reads in the CQ.
func (r *Ring) SetCQFlags(f CQFlags) { r.cq.flags.Store(uint32(f)) }

// closedQueues returns the queues of a closed ring: no entries, no completions.
func closedQueues() (sq, cq) {
	w := new([4]atomic.Uint32)
	return sq{head: &w[0], tail: &w[0], flags: &w[1]},
		cq{head: &w[0], tail: &w[0], overflow: &w[2], flags: &w[3]}
}

// register issues one register operation on the ring. An interrupted one is
// issued again.
func (r *Ring) register(op RegisterOp, arg sysPointer, n uint32) (int, error) {
	for {
		v, errno := r.registerOnce(op, arg, n)
		if errno == 0 {
			return v, nil
		}
		if errno != syscall.EINTR {
			return 0, sys.Error("io_uring_register "+op.String(), errno)
		}
	}
}

func (r *Ring) registerOnce(op RegisterOp, arg sysPointer, n uint32) (int, syscall.Errno) {
	fd, code := r.FD(), uint32(op)
	if r.fd == nil {
		if r.registered < 0 {
			return 0, syscall.EBADF
		}
		fd, code = r.registered, code|abi.IORING_REGISTER_USE_REGISTERED_RING
	}
	return sys.Register(fd, code, arg, n)
}
