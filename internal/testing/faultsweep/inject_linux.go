// SPDX-License-Identifier: MIT

package faultsweep

import (
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// often is the number of answers that fail if more than one does, unless the fault
// lasts.
const often = 25

// plan is one fault: which answer fails, and how.
type plan struct {
	kind   string
	nth    int // from 1 on; 0 is none
	choice Choice
	times  int
	seed   uint64 // of a storm, which is random and not one answer; 0 is none
}

// injector is the hook before the system calls. While it is armed it counts the answers of
// each kind and makes the planned ones fail.
type injector struct {
	mu         sync.Mutex
	armed      bool
	plan       plan
	seen       map[string]int
	failures   int
	simulated  bool
	atSyscalls bool
	dice       *rand.Rand                 // of a storm
	storms     func(kind string) []Choice // the faults of a storm
	released   *sys.FD                    // readable when what was dropped may complete
}

func newInjector() *injector { return &injector{seen: make(map[string]int)} }

// begin installs the hook.
func (in *injector) begin(p plan) (err error) {
	in.plan = p
	in.dice = rand.New(rand.NewPCG(p.seed, 1))
	if in.released, err = sys.EventFD(); err != nil {
		return err
	}
	if !in.simulated && !in.atSyscalls {
		sys.SetFaults(&sys.Faults{Enter: in.enter, Call: in.call})
	}
	return nil
}

// end removes the hook and lets the completions appear that it had held back.
func (in *injector) end() {
	sys.SetFaults(nil)
	sys.SetSimulator(nil)
	in.release()
	_ = in.released.Close()
}

func (in *injector) release() { sys.Signal(in.released) }

func (in *injector) arm(on bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.armed = on
}

// fired returns how many answers have failed.
func (in *injector) fired() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.failures
}

// answer reports whether the next answer of a kind fails. A transfer whose size cannot be
// halved is not made short. The caller holds mu.
func (in *injector) answer(kind string, size int) bool {
	if !in.armed {
		return false
	}
	if c := in.plan.choice; (c.Short || c.Split) && in.plan.kind == kind && half(size) == 0 {
		return false
	}
	in.seen[kind]++
	if n := in.seen[kind] - in.plan.nth; in.plan.nth == 0 || in.plan.kind != kind || n < 0 || n >= in.plan.times {
		return false
	}
	in.failures++
	return true
}

// calm is the number of correct answers of a storm for each that fails.
const calm = 6

// decide returns the fault of the next answer of a kind, and whether there is one. The
// caller holds mu.
func (in *injector) decide(kind string, size int) (Choice, bool) {
	if in.plan.seed == 0 {
		return in.plan.choice, in.answer(kind, size)
	}
	if !in.armed {
		return Choice{}, false
	}
	in.seen[kind]++
	cs := in.storms(kind)
	if len(cs) == 0 || in.dice.IntN(calm+1) > 0 {
		return Choice{}, false
	}
	c := cs[in.dice.IntN(len(cs))]
	if c.Short && half(size) == 0 {
		return Choice{}, false
	}
	in.failures++
	return c, true
}

// enter decides about io_uring_enter(2) and the entries that it takes.
func (in *injector) enter(entries []*abi.SQE) (int, syscall.Errno) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.answer("io_uring_enter", len(entries)) {
		if in.plan.choice.Short {
			entries = entries[:half(len(entries))]
		} else {
			return 0, in.plan.choice.Errno
		}
	}
	for _, e := range entries {
		if in.answer(kindOf(e), int(int32(e.Len))) {
			in.inject(e)
		}
	}
	return len(entries), 0
}

// kindOf returns the kind of an SQE. A linked timeout belongs to the operation before it.
func kindOf(e *abi.SQE) string { return uring.Op(e.Opcode).String() }

// inject changes an SQE so that it fails.
func (in *injector) inject(e *abi.SQE) {
	const kept = uint8(uring.SQELink | uring.SQEHardLink | uring.SQESkipSuccess | uring.SQEDrain)
	c := in.plan.choice
	switch data, flags := e.UserData, e.Flags&kept; {
	case c.Short:
		e.Len = uint32(half(int(e.Len)))
	case c.Late:
		e.Flags |= uint8(uring.SQEAsync)
	case c.Drop:
		*e = abi.SQE(*new(uring.SQE).PollAdd(uring.Fd(in.released.Int()), 1).SetUserData(data).Raw())
	default:
		nop := uring.NopOptions{Inject: true, Result: -int32(c.Errno)}
		*e = abi.SQE(*new(uring.SQE).NopWith(nop).SetUserData(data).Raw())
		e.Flags = flags
	}
}

// call decides about any other call.
func (in *injector) call(name string, n int) (int, syscall.Errno) {
	switch {
	case name == "io_uring_register" && uring.RegisterOp(n) == uring.OpRegisterRingFDs:
		return 0, syscall.ENOMEM // every user works without it, and the hook could not identify the ring
	case name == "epoll_ctl":
		name += [...]string{1: " add", 2: " del", 3: " mod"}[n]
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	size := n
	if name == "io_uring_register" || name == "mmap" || strings.HasPrefix(name, "epoll_ctl") {
		size = 0
	}
	switch c := in.plan.choice; {
	case !in.answer(name, size):
		return n, 0
	case c.Short:
		return half(n), 0
	default:
		return 0, c.Errno
	}
}
