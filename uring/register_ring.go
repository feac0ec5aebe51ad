// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// RegisterRingFD makes system calls cheaper: they use a registered index instead of the
// descriptor. The index belongs to the calling thread: every later call that enters the
// kernel must come from it, so lock the goroutine to its thread. (5.18)
func (r *Ring) RegisterRingFD() error {
	if r.registered >= 0 {
		return nil
	}
	arg := &abi.RingFDUpdate{Offset: ^uint32(0), Data: uint64(r.FD())}
	if _, err := r.register(OpRegisterRingFDs, sys.Pointer(arg), 1); err != nil {
		return err
	}
	r.registered, r.thread = int(arg.Offset), sys.ThreadID()
	r.enterFD = r.registered
	r.enterFlags |= abi.IORING_ENTER_REGISTERED_RING
	return nil
}

// UnregisterRingFD undoes [Ring.RegisterRingFD], on the same thread; on another
// it is an error and does nothing. A ring with RegisteredFDOnly is gone
// afterwards. (5.18)
func (r *Ring) UnregisterRingFD() error {
	if r.registered < 0 {
		return nil
	}
	if sys.ThreadID() != r.thread {
		// On this thread the index may belong to another ring.
		return errOtherThread
	}
	arg := &abi.RingFDUpdate{Offset: uint32(r.registered)}
	_, err := r.register(OpUnregisterRingFDs, sys.Pointer(arg), 1)
	r.registered = -1
	r.enterFD = r.FD()
	r.enterFlags &^= abi.IORING_ENTER_REGISTERED_RING
	return err
}

var errOtherThread = errors.New("uring: the index of the registered ring belongs to another thread, which keeps the ring alive until it exits")

// Enable starts a ring opened with Disabled; with SingleIssuer the caller's
// thread becomes the issuer. (5.10)
func (r *Ring) Enable() error {
	_, err := r.register(OpRegisterEnableRings, nil, 0)
	if err == nil {
		r.setup &^= SetupDisabled
	}
	return err
}

// RegisterEventFD makes the kernel signal an eventfd for each completion. With
// asyncOnly (5.6) it does so only for operations that did not complete during
// submission. (5.2)
func (r *Ring) RegisterEventFD(fd int, asyncOnly bool) error {
	op, arg := OpRegisterEventFD, int32(fd)
	if asyncOnly {
		op = OpRegisterEventFDAsync
	}
	_, err := r.register(op, sys.Pointer(&arg), 1)
	return err
}

// UnregisterEventFD undoes [Ring.RegisterEventFD]. (5.2)
func (r *Ring) UnregisterEventFD() error {
	_, err := r.register(OpUnregisterEventFD, nil, 0)
	return err
}

// RegisterPersonality registers the credentials of the calling thread and
// returns the id for [SQE.SetPersonality]. (5.6)
func (r *Ring) RegisterPersonality() (uint16, error) {
	id, err := r.register(OpRegisterPersonality, nil, 0)
	return uint16(id), err
}

// UnregisterPersonality drops credentials. (5.6)
func (r *Ring) UnregisterPersonality(id uint16) error {
	_, err := r.register(OpUnregisterPersonality, nil, uint32(id))
	return err
}

// SetIOWQAffinity binds worker threads to CPUs. It affects the workers that serve the
// calling thread's submissions to any ring or, with SQPoll, the submissions of the
// ring's kernel thread. The kernel ignores numbers beyond those it was built for.
// (5.14)
func (r *Ring) SetIOWQAffinity(cpus []int) error {
	mask, err := cpuMask(cpus)
	if err != nil {
		return err
	}
	_, err = r.register(OpRegisterIOWQAffinity, sys.SlicePointer(mask), count(len(mask)))
	return err
}

// maxCPU is the highest number of a processor that a kernel can be built for.
const maxCPU = 8191

// cpuMask returns a cpu_set_t with the given processors.
func cpuMask(cpus []int) ([]byte, error) {
	if len(cpus) == 0 {
		return nil, errors.New("uring: no processor to bind worker threads to")
	}
	highest := 0
	for _, c := range cpus {
		if c < 0 || c > maxCPU {
			return nil, fmt.Errorf("uring: no processor can have the number %d", c)
		}
		highest = max(highest, c)
	}
	mask := make([]byte, (highest/64+1)*8)
	for _, c := range cpus {
		setCPU(mask, c)
	}
	return mask, nil
}

// ClearIOWQAffinity undoes [Ring.SetIOWQAffinity]. (5.14)
func (r *Ring) ClearIOWQAffinity() error {
	_, err := r.register(OpUnregisterIOWQAffinity, nil, 0)
	return err
}

// SetIOWQMaxWorkers limits the worker threads of each thread that submits to the ring,
// per NUMA node. Bounded workers serve files and block devices, unbounded workers the
// rest. 0 leaves a limit as it is. It returns the calling thread's previous limits.
// (5.15)
func (r *Ring) SetIOWQMaxWorkers(bounded, unbounded int) (oldBounded, oldUnbounded int, err error) {
	v := &[2]uint32{uint32(bounded), uint32(unbounded)}
	if _, err = r.register(OpRegisterIOWQMaxWorkers, sys.Pointer(v), 2); err != nil {
		return 0, 0, err
	}
	return int(v[0]), int(v[1]), nil
}

// NAPI are the settings of network busy polling.
type NAPI struct {
	// Timeout is how long to poll before sleeping, in whole microseconds.
	Timeout time.Duration
	Prefer  bool // prefer busy polling to interrupts
	// Static polls only the NAPI ids added with AddNAPI. (6.13)
	Static bool
}

// SetNAPI turns busy polling on and returns the previous settings. (6.9)
func (r *Ring) SetNAPI(n NAPI) (NAPI, error) {
	arg := &abi.Napi{BusyPollTo: uint32(n.Timeout / time.Microsecond)}
	if n.Prefer {
		arg.PreferBusyPoll = 1
	}
	if n.Static {
		arg.OpParam = abi.IO_URING_NAPI_TRACKING_STATIC
	}
	if _, err := r.register(OpRegisterNAPI, sys.Pointer(arg), 1); err != nil {
		return NAPI{}, err
	}
	return napiOf(arg), nil
}

// ClearNAPI turns busy polling off and returns the previous settings. The kernel does
// not report Static. (6.9)
func (r *Ring) ClearNAPI() (NAPI, error) {
	arg := &abi.Napi{}
	_, err := r.register(OpUnregisterNAPI, sys.Pointer(arg), 1)
	return napiOf(arg), err
}

// AddNAPI adds a NAPI id (SO_INCOMING_NAPI_ID) to poll with Static. (6.13)
func (r *Ring) AddNAPI(id uint32) error { return r.napiID(abi.IO_URING_NAPI_STATIC_ADD_ID, id) }

// RemoveNAPI undoes [Ring.AddNAPI]. (6.13)
func (r *Ring) RemoveNAPI(id uint32) error { return r.napiID(abi.IO_URING_NAPI_STATIC_DEL_ID, id) }

func (r *Ring) napiID(op uint8, id uint32) error {
	_, err := r.register(OpRegisterNAPI, sys.Pointer(&abi.Napi{Opcode: op, OpParam: id}), 1)
	return err
}

func napiOf(n *abi.Napi) NAPI {
	return NAPI{Timeout: time.Duration(n.BusyPollTo) * time.Microsecond, Prefer: n.PreferBusyPoll != 0,
		Static: n.OpParam == abi.IO_URING_NAPI_TRACKING_STATIC}
}

// Clock is the clock of the timeouts of waits.
type Clock uint32

const (
	ClockMonotonic Clock = 1 // the default
	ClockBoottime  Clock = 7 // counts suspension too
)

// SetClock selects the clock for the timeouts of waits. (6.12)
func (r *Ring) SetClock(c Clock) error {
	_, err := r.register(OpRegisterClock, sys.Pointer(&abi.ClockRegister{Clockid: uint32(c)}), 0)
	return err
}

// SendMsgRing posts a completion to target. The caller needs no other ring: see
// [SQE.MsgRing]. (6.13)
func SendMsgRing(target *Ring, userData uint64, res int32) error {
	var e SQE
	e.MsgRing(Fd(target.FD()), userData, res)
	_, errno := sys.Register(-1, uint32(OpRegisterSendMsgRing), sys.Pointer(&e), 1)
	if errno == syscall.Errno(0) {
		return nil
	}
	return sys.Error("io_uring_register "+OpRegisterSendMsgRing.String(), errno)
}

// setCPU sets a bit of a cpu_set_t, which is an array of native longs.
func setCPU(mask []byte, cpu int) {
	word := mask[cpu/64*8 : cpu/64*8+8]
	binary.NativeEndian.PutUint64(word, binary.NativeEndian.Uint64(word)|1<<(cpu%64))
}
