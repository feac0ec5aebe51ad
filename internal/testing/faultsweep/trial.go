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

// Patience limits the time of a run.
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

// Arm makes the kernel's answers count, and fail, until Disarm. For an operation with
// Syscalls, rings that are opened meanwhile are simulated.
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

// Choice returns the fault of this run, and whether it has happened.
func (t *Trial) Choice() (Choice, bool) { return t.in.plan.choice, t.in.fired() > 0 }

// Seen returns how many answers of a kind have been counted.
func (t *Trial) Seen(kind string) int {
	t.in.mu.Lock()
	defer t.in.mu.Unlock()
	return t.in.seen[kind]
}

// FaultKind returns the kind of answer that fails in this run, or "" for none.
func (t *Trial) FaultKind() string { return t.in.plan.kind }

// Lasting reports whether the fault lasts until the end of the run.
func (t *Trial) Lasting() bool { return t.in.plan.times > often }

// Errorf records a problem. It may be called by any goroutine.
func (t *Trial) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
}

// Fatalf is Errorf and ends the run. Only the goroutine of Run may call it.
func (t *Trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Judge checks the error of an operation during which the kernel failed: it must be nil or
// the fault's. It reports whether the operation has succeeded.
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
		t.Errorf("not true in time: %s", what)
	}
}

// await waits until a condition holds and reports whether it does.
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
