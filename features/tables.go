// SPDX-License-Identifier: MIT

package features

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/uring"
)

// HaveOp returns nil if the kernel's opcode probe lists the opcode.
func HaveOp(op uring.Op) error { return kernel.haveOp(op) }

func (h *host) haveOp(op uring.Op) error {
	return h.ask("opcode "+op.String(), at(opSince[:], int(op)), func(f facts) error {
		if info := h.queried(); info != nil && int(op) >= info.Ops {
			return lacking("the kernel knows %d opcodes", info.Ops)
		}
		if !f.ops.Has(op) {
			return lacking("the opcode probe of the kernel %s does not list it", probe.Release())
		}
		return nil
	})
}

// HaveFeature returns nil if io_uring_setup(2) returns all of the feature bits.
// With f = 0 it is [HaveIOURing].
func HaveFeature(f uring.Features) error { return kernel.haveFeature(f) }

func (h *host) haveFeature(want uring.Features) error {
	return h.each(uint64(want), featureBits, "feature", func(b bit) func(facts) error {
		return func(f facts) error {
			if uint64(f.features)&b.mask == 0 {
				return lacking("the kernel %s answers setup without this bit", probe.Release())
			}
			return nil
		}
	})
}

// each probes every bit separately.
func (h *host) each(mask uint64, known []bit, kind string, question func(bit) func(facts) error) error {
	if mask == 0 {
		return h.haveIOURing()
	}
	for _, b := range split(mask, known) {
		if err := h.ask(kind+" "+b.name, b.since, question(b)); err != nil {
			return err
		}
	}
	return nil
}

// HaveSetup returns nil if the kernel knows all of the setup flags. The kernel may
// still refuse their combination: see [uring.Options.SetupFlags]. A kernel that
// knows SETUP_IOPOLL may have no device with poll queues; only I/O on the device
// shows that.
func HaveSetup(f uring.SetupFlags) error { return kernel.haveSetup(f) }

func (h *host) haveSetup(want uring.SetupFlags) error {
	return h.each(uint64(want), setupBits, "setup flag", func(b bit) func(facts) error {
		return func(facts) error {
			if info := h.queried(); info != nil {
				return inMask(uint64(info.Setup), b.mask)
			}
			return h.trySetup(uring.SetupFlags(b.mask))
		}
	})
}

// inMask returns nil if the kernel's mask has the wanted bit.
func inMask(have, want uint64) error {
	if have&want == 0 {
		return lacking("the kernel %s says so itself", probe.Release())
	}
	return nil
}

// trySetup opens a ring with the flag and what it cannot be without.
func (h *host) trySetup(flag uring.SetupFlags) error {
	o := uring.Options{Entries: 1}
	switch flag {
	case uring.SetupIOPoll:
		o.IOPoll = true
	case uring.SetupSQPoll:
		o.SQPoll = true
	case uring.SetupSQAff:
		o.SQPoll, o.SQPollPinned, o.SQPollCPU = true, true, uint32(h.environment().CPU)
	case uring.SetupCQSize:
		o.CQEntries = 4
	case uring.SetupClamp:
		o.Clamp = true
	case uring.SetupAttachWQ:
		return h.tryAttach(o)
	case uring.SetupDisabled:
		o.Disabled = true
	case uring.SetupSubmitAll:
		o.SubmitAll = true
	case uring.SetupCoopTaskrun:
		o.CoopTaskrun = true
	case uring.SetupTaskrunFlag:
		o.CoopTaskrun, o.TaskrunFlag = true, true
	case uring.SetupSQE128:
		o.SQE128 = true
	case uring.SetupCQE32:
		o.CQE32 = true
	case uring.SetupSingleIssuer:
		o.SingleIssuer = true
	case uring.SetupDeferTaskrun:
		o.DeferTaskrun = true
	case uring.SetupNoMmap:
		o.NoMmap = true
	case uring.SetupRegisteredFDOnly:
		o.RegisteredFDOnly = true
	case uring.SetupNoSQArray:
		o.NoSQArray = true
	case uring.SetupHybridIOPoll:
		o.HybridIOPoll = true
	case uring.SetupCQEMixed:
		o.CQEMixed = true
	default: // younger than the query operation, which this kernel does not have
		return lacking("the kernel %s has no REGISTER_QUERY, which came before it", probe.Release())
	}
	return h.tryOpen(&o)
}

func (h *host) tryOpen(o *uring.Options) error {
	err := h.withTrial(o, func(*trial) error { return nil })
	return answer("io_uring_setup", err)
}

func (h *host) tryAttach(o uring.Options) error {
	return h.withTrial(&uring.Options{Entries: 1}, func(t *trial) error {
		o.AttachWQ = t.ring
		return h.tryOpen(&o)
	})
}

// haveEnter returns nil if io_uring_enter(2) knows all of the flags.
func (h *host) haveEnter(want uint32) error {
	return h.each(uint64(want), enterBits, "enter flag", func(b bit) func(facts) error {
		return func(facts) error {
			if info := h.queried(); info != nil {
				return inMask(uint64(info.Enter), b.mask)
			}
			if b.mask == abi.IORING_ENTER_REGISTERED_RING {
				return h.tryRegisteredRing()
			}
			return h.tryEnter(uint32(b.mask))
		}
	})
}

// tryEnter relies on the kernel looking at the flags before the descriptor.
func (h *host) tryEnter(flag uint32) error {
	switch errno := h.enter(flag); errno {
	case syscall.EBADF:
		return nil
	case syscall.EINVAL:
		return answer("io_uring_enter", errno)
	default:
		return fmt.Errorf("io_uring_enter on a bad descriptor: %w", errno)
	}
}

// tryRegisteredRing uses the flag: with it the kernel looks for a ring first, and
// returns EINVAL when there is none.
func (h *host) tryRegisteredRing() error {
	return h.withTrial(&uring.Options{Entries: 4}, func(t *trial) error {
		if err := t.ring.RegisterRingFD(); err != nil {
			return answer("REGISTER_RING_FDS", err)
		}
		_, err := t.do(func(e *uring.SQE) { e.Nop() })
		return err
	})
}

// HaveRegister returns nil if the kernel knows the register operation. The
// operation may still fail because a device, or a part that this kernel was built
// without, is missing.
func HaveRegister(op uring.RegisterOp) error { return kernel.haveRegister(op) }

func (h *host) haveRegister(op uring.RegisterOp) error {
	return h.ask("register operation "+op.String(), at(registerSince[:], int(op)), func(facts) error {
		known, err := h.registerOps()
		if err != nil {
			return err
		}
		if int(op) >= len(known) || !known[op] {
			return lacking("the kernel %s does not know it", probe.Release())
		}
		return nil
	})
}

// registerOps returns which operations the kernel knows.
func (h *host) registerOps() ([]bool, error) {
	return h.register.Get(struct{}{}, func() ([]bool, error) {
		if info := h.queried(); info != nil {
			known := make([]bool, info.RegisterOps)
			for i := range known {
				known[i] = true
			}
			return known, nil
		}
		return h.tryRegister()
	})
}

// firstRestricted is the first operation that came with restricted rings. A kernel
// without restricted rings has all operations before it: package uring needs
// REGISTER_PROBE, and they came in the same version or earlier.
const firstRestricted = uring.OpRegisterRestrictions

// tryRegister tries each operation on a ring that allows none. The kernel returns
// EACCES for an operation that it knows, and EINVAL for others.
func (h *host) tryRegister() (known []bool, err error) {
	err = h.withTrial(&uring.Options{Entries: 1, Disabled: true}, func(t *trial) error {
		allow := uring.Restrictions{RegisterOps: []uring.RegisterOp{uring.OpRegisterEnableRings}}
		if err := firstError(t.ring.Restrict(allow), t.ring.Enable()); err != nil {
			return err
		}
		known, err = askRegister(t.ring.FD())
		return err
	})
	if errors.Is(err, syscall.EINVAL) {
		known = make([]bool, firstRestricted)
		for i := range known {
			known[i] = true
		}
		err = nil
	}
	return known, err
}

// impossible is a number that no operation has.
const impossible = 1 << 20

func askRegister(fd int) ([]bool, error) {
	if errno := probe.RegisterErrno(fd, impossible); errno != syscall.EINVAL {
		return nil, fmt.Errorf("the register operation %d returns %w, not EINVAL", impossible, errno)
	}
	known := make([]bool, 2*uring.RegisterOpCount)
	for op := range known {
		switch errno := probe.RegisterErrno(fd, uint32(op)); {
		case errno == syscall.EACCES, uring.RegisterOp(op) == uring.OpRegisterEnableRings:
			known[op] = true
		case errno != syscall.EINVAL:
			return nil, fmt.Errorf("the register operation %v on a restricted ring: %w", uring.RegisterOp(op), errno)
		}
	}
	return known, nil
}
