// SPDX-License-Identifier: MIT

package faultsweep

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/ringhook"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/uring"
)

// firstFD is far above the descriptors of the process.
const firstFD = 1 << 20

// Rings makes a reactor with the given options, a *reactor.Options, use simulated rings,
// if the operation has Sim.
func (t *Trial) Rings(options any) {
	if !t.in.simulated {
		return
	}
	k := t.Kernel()
	ringhook.Put(options, func(o ringhook.Options) (ringhook.Ring, ringhook.Parker, error) {
		r := k.Open(kernelsim.RingOptions{Entries: o.Entries, CQEntries: 2 * o.Entries})
		return r, r.Parker(), nil
	})
}

// Kernel returns the simulated kernel of the run.
func (t *Trial) Kernel() *kernelsim.Kernel {
	if t.kernel == nil {
		in := t.in
		t.kernel = kernelsim.New(kernelsim.Options{Seed: 1, Host: kernelsim.Files{}, FirstFD: firstFD,
			Plan: kernelsim.Plan{Op: in.fault, Submit: in.submit, Wait: in.happens("wait"), Wake: in.happens("wake"), Park: in.happens("parker")}})
	}
	return t.kernel
}

// endRings ends the simulated kernels and reports their violations.
func (t *Trial) endRings() {
	if t.calls != nil {
		for _, v := range t.calls.Violations() {
			t.Errorf("violation: %s", v)
		}
		t.calls.Close()
	}
	if t.kernel == nil {
		return
	}
	for _, v := range t.kernel.Violations() {
		t.Errorf("violation: %s", v)
	}
	t.kernel.Close()
}

// simulate puts a simulated kernel behind the system-call hook.
func (t *Trial) simulate() {
	if t.calls == nil {
		in := t.in
		t.calls = kernelsim.New(kernelsim.Options{Seed: 1 + in.plan.seed, Plan: kernelsim.Plan{Op: in.shot, Submit: in.enters,
			Wait: in.happens("wait"), Wake: in.happens("wake"), Overflow: in.happens("completion")}})
	}
	sys.SetSimulator(t.calls)
}

// Settle waits until no operation is in flight on closed rings of simulated system calls.
// Until then their users must not touch the memory of these operations.
func (t *Trial) Settle() {
	if t.calls != nil {
		t.calls.Settle()
	}
}

// shot returns the fault of an operation, or of the next completion of a multishot
// operation, on simulated system calls.
func (in *injector) shot(e *uring.RawSQE) kernelsim.Fault {
	size := int(int32(e.Len))
	if e.Flags&abi.IOSQE_BUFFER_SELECT != 0 {
		size = 2 // whatever the buffer has
	}
	return in.begins(e.Opcode, size)
}

// enters returns the fault of an io_uring_enter with n SQEs.
func (in *injector) enters(n int) (take int, split bool, errno syscall.Errno) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch c, wrong := in.decide("io_uring_enter", n); {
	case !wrong:
		return n, false, 0
	case c.Short:
		return half(n), false, 0
	default:
		return 0, false, c.Errno
	}
}

// fault returns the fault of an operation of a simulated ring.
func (in *injector) fault(e *uring.RawSQE) kernelsim.Fault {
	return in.begins(e.Opcode, int(int32(e.Len)))
}

// begins returns the fault of an operation of the given size.
func (in *injector) begins(opcode uint8, size int) kernelsim.Fault {
	in.mu.Lock()
	defer in.mu.Unlock()
	c, wrong := in.decide(uring.Op(opcode).String(), size)
	if !wrong {
		return kernelsim.Fault{}
	}
	if c.Errno == syscall.ECANCELED && !c.Lost {
		return kernelsim.Fault{Unasked: true}
	}
	return kernelsim.Fault{Errno: c.Errno, Short: c.Short, Late: c.Late, Stale: c.Stale, Lost: c.Lost}
}

// submit returns the fault of a submission of n SQEs.
func (in *injector) submit(n int) (take int, split bool, errno syscall.Errno) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch c := in.plan.choice; {
	case !in.answer("submit", n):
		return n, false, 0
	case c.Short, c.Split:
		return max(half(n), 1), c.Split, 0
	default:
		return 0, false, c.Errno
	}
}

// happens returns a function that reports whether the next event of a kind fails.
func (in *injector) happens(kind string) func() bool {
	return func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		_, wrong := in.decide(kind, 0)
		return wrong
	}
}
