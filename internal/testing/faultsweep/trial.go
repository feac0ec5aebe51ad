// SPDX-License-Identifier: MIT

//go:build linux

package faultsweep

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/kernelsim"
)

// Patience is how long a run may take.
const Patience = 30 * time.Second

// Trial is one run of an operation.
type Trial struct {
	in       *injector
	patience time.Duration

	mu       sync.Mutex
	problems []string
	kernel   *kernelsim.Kernel // of simulated rings
	calls    *kernelsim.Kernel // of rings that are simulated at the system calls
}

// Arm has the kernel's answers count, and fail, from here to Disarm. Rings that are
// opened meanwhile are simulated, if that is to be.
func (t *Trial) Arm() {
	if t.in.atSyscalls {
		t.simulate()
	}
	t.in.arm(true)
}

// Disarm ends Arm.
func (t *Trial) Disarm() {
	t.in.arm(false)
	if t.in.atSyscalls {
		sys.SetSimulator(nil)
	}
}

// Choice returns what goes wrong in this run, and whether it has.
func (t *Trial) Choice() (Choice, bool) { return t.in.plan.choice, t.in.fired() > 0 }

// Seen returns how many answers of a kind have been counted.
func (t *Trial) Seen(kind string) int {
	t.in.mu.Lock()
	defer t.in.mu.Unlock()
	return t.in.seen[kind]
}

// Planned returns the kind of answer that fails in this run, "" for none.
func (t *Trial) Planned() string { return t.in.plan.kind }

// Lasting says that the fault does not pass within the run.
func (t *Trial) Lasting() bool { return t.in.plan.times > often }

// Errorf notes what is wrong. It may be called by any goroutine.
func (t *Trial) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
}

// Fatalf is Errorf, and ends the run. It is for the goroutine of Run.
func (t *Trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Judge looks at the error of an operation that was under way while the kernel
// failed: it must be nil, or what has gone wrong. It reports whether the operation
// has succeeded.
func (t *Trial) Judge(what string, err error) bool {
	if err == nil {
		return true
	}
	c, fired := t.Choice()
	switch {
	case !fired:
		t.Errorf("%s: %v, without a fault", what, err)
	case c.Passing && !(c.Once && t.in.plan.times > 1):
		t.Errorf("%s: %v, although the fault passes", what, err)
	case !errors.Is(err, c.Errno):
		t.Errorf("%s: %v (%T), want %v", what, err, err, c)
	}
	return false
}

// Await waits until cond holds.
func (t *Trial) Await(what string, cond func() bool) {
	if !await(t.patience, cond) {
		t.Errorf("still not: %s", what)
	}
}

// await waits for a condition and reports whether it came to hold.
func await(patience time.Duration, cond func() bool) bool {
	for end := time.Now().Add(patience); !cond(); {
		if time.Now().After(end) {
			return false
		}
		runtime.Gosched()
		time.Sleep(50 * time.Microsecond)
	}
	return true
}
