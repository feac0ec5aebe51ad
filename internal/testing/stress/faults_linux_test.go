// SPDX-License-Identifier: MIT

package stress

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/faultsweep"
	"github.com/ringside-io/ringside/uring"
)

// faultsEnv is an environment on the running kernel. The hook of package sys changes
// results at random, by faults that lose nothing. (Package faultsweep tries them one by
// one.) Only direct users of the engine may see these faults.
type faultsEnv struct {
	*KernelEnv
	faults *faults
}

// faults are the faults with their probabilities.
type faults struct {
	entry, enter float64

	mu    sync.Mutex
	rng   *rand.Rand
	armed bool
	count map[string]int
	wrong int // how many results
}

// faultsSettings draws the settings of an environment with faults.
func faultsSettings(rng *rand.Rand) Settings {
	s := KernelSettings(rng)
	s["faults"], s["enter-faults"] = pick(rng, 0.01, 0.05, 0.3), pick(rng, 0, 0.01, 0.1)
	return s
}

// newFaultsEnv opens an environment. Its rings are opened without the hook, and there are
// no faults before they are open: features that are probed then are cached for the process.
func newFaultsEnv(s *Scenario, dir string) (*faultsEnv, error) {
	f := &faults{
		entry: s.Settings["faults"], enter: s.Settings["enter-faults"],
		rng: rand.New(rand.NewPCG(s.Seed, 0xfa)), count: make(map[string]int),
	}
	sys.SetFaults(&sys.Faults{Enter: f.entered, Call: f.called})
	inner, err := NewKernelEnv(s, dir)
	if err == nil {
		err = inner.Batch(false, nil)
	}
	if err != nil {
		sys.SetFaults(nil)
		return nil, err
	}
	f.arm(true)
	return &faultsEnv{inner, f}, nil
}

// Tolerates permits errors that the engine returns unchanged.
func (w *faultsEnv) Tolerates(err error) bool {
	return err == syscall.EAGAIN || err == syscall.ENOMEM
}

// Finish closes the environment, also under faults.
func (w *faultsEnv) Finish() []string {
	wrong := w.KernelEnv.Finish()
	w.faults.arm(false)
	sys.SetFaults(nil)
	return wrong
}

// Trace lists the faults.
func (w *faultsEnv) Trace() string {
	w.faults.mu.Lock()
	defer w.faults.mu.Unlock()
	return fmt.Sprintf("%s\n%v", w.KernelEnv.Trace(), w.faults.count)
}

func (f *faults) arm(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = on
}

// made returns the number of faults.
func (f *faults) made() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wrong
}

// lies are errnos that would permanently hide data in a socket (no event reports it again),
// space in a socket, or a poll that waits.
var lies = map[string][]syscall.Errno{
	"RECV": {syscall.EAGAIN, syscall.ENOBUFS}, "POLL_REMOVE": {syscall.ENOENT, syscall.ECANCELED},
	"POLL_ADD": {syscall.ECANCELED}, // a valid result, unless the operation's thread has exited
}

// choice decides about a result. The caller holds mu.
func (f *faults) choice(kind string, p float64) (c faultsweep.Choice, ok bool) {
	all := faultsweep.Choices[kind]
	if !f.armed || len(all) == 0 || f.rng.Float64() >= p {
		return c, false
	}
	c = all[f.rng.IntN(len(all))]
	return c, c.Passing && !slices.Contains(lies[kind], c.Errno)
}

// note counts a fault. The caller holds mu.
func (f *faults) note(kind string, c faultsweep.Choice) {
	f.count[kind+" "+c.String()]++
	f.wrong++
}

// entered decides about an enter and the entries that it submits.
func (f *faults) entered(entries []*abi.SQE) (int, syscall.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()
	const kind = "io_uring_enter"
	if c, ok := f.choice(kind, f.enter); ok {
		switch n := len(entries) / 2; {
		case !c.Short:
			f.note(kind, c)
			return 0, c.Errno
		case n > 0 && entries[n-1].Flags&uint8(uring.SQELink|uring.SQEHardLink) == 0:
			f.note(kind, c)
			entries = entries[:n]
		}
	}
	for _, e := range entries {
		kind := uring.Op(e.Opcode).String()
		if c, ok := f.choice(kind, f.entry); ok && injure(e, c) {
			f.note(kind, c)
		}
	}
	return len(entries), 0
}

// injure injects a fault into an entry, if the entry permits it.
func injure(e *abi.SQE, c faultsweep.Choice) bool {
	const kept = uint8(uring.SQELink | uring.SQEHardLink | uring.SQESkipSuccess | uring.SQEDrain)
	data, flags := e.UserData, e.Flags
	worker, linked := flags&uint8(uring.SQEAsync) != 0, flags&uint8(uring.SQELink) != 0
	switch {
	case c.Short:
		if e.Len < 2 || linked { // a short operation ends its chain, and this fault would not
			return false
		}
		e.Len /= 2
	case c.Late:
		e.Flags |= uint8(uring.SQEAsync)
	case c.Once && worker: // its result would be the final one
		return false
	case c.Errno != 0:
		nop := uring.NopOptions{Inject: true, Result: -int32(c.Errno)}
		*e = abi.SQE(*new(uring.SQE).NopWith(nop).SetUserData(data).Raw())
		e.Flags = flags & kept
	default:
		return false
	}
	return true
}

// called decides about any other call.
func (f *faults) called(name string, n int) (int, syscall.Errno) {
	if name == "io_uring_register" && uring.RegisterOp(n) == uring.OpRegisterRingFDs {
		return 0, syscall.ENOMEM // every user works without it, and the hook would not know the ring
	}
	if !oftenCalled[name] {
		return n, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.choice(name, f.entry)
	switch {
	case !ok:
	case !c.Short:
		f.note(name, c)
		return n, c.Errno
	case n > 1:
		f.note(name, c)
		return n / 2, 0
	}
	return n, 0
}

// oftenCalled are the calls that get faults. Other calls are made once for each object, or
// probe features.
var oftenCalled = map[string]bool{
	"recv": true, "send": true, "accept": true, "pread": true, "pwrite": true, "preadv2": true, "fdatasync": true,
	"epoll_wait": true, "poll": true,
}

// runFaults runs a scenario in an environment with faults.
func runFaults(t *testing.T, s *Scenario) *Report {
	t.Helper()
	faultsweep.Need(t)
	w, err := newFaultsEnv(s, memoryDir(t))
	if err != nil {
		t.Fatal(err)
	}
	r := Run(w, s)
	t.Logf("seed %d: %d faults in %d operations", s.Seed, w.faults.made(), r.Operations)
	if r.Failed() {
		fmt.Fprintln(os.Stderr, w.Trace())
	}
	return r
}
