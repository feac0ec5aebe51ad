// SPDX-License-Identifier: MIT

package features

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// counting makes the host count how often a ring is opened.
func counting(h *host) *int {
	n := new(int)
	open := h.open
	h.open = func(o *uring.Options) (*uring.Ring, error) { *n++; return open(o) }
	return n
}

func TestCaching(t *testing.T) {
	memlock := probe.Environment{Release: "5.10.0", MemlockSoft: new(int64(65536))}
	tests := []struct {
		errno syscall.Errno
		env   probe.Environment
		opens int // for three calls
	}{
		{syscall.EPERM, probe.Environment{Seccomp: off}, 1},
		{syscall.ENOSYS, probe.Environment{Seccomp: off}, 1},
		{syscall.ENOSYS, probe.Environment{Release: "6.1.0", Seccomp: filtered}, 1},
		{syscall.EINVAL, probe.Environment{Seccomp: off}, 1},
		{syscall.EMFILE, probe.Environment{Seccomp: off}, 3},
		{syscall.ENOMEM, probe.Environment{Seccomp: off}, 3},
		{syscall.EAGAIN, probe.Environment{Seccomp: off}, 3},
		{syscall.EINTR, probe.Environment{Seccomp: off}, 3},
		{syscall.ENOMEM, memlock, 3}, // forbidden because of memory, which other processes may free
	}
	for _, test := range tests {
		h := fake(setupError(test.errno), syscall.EBADF, test.env)
		opens := counting(h)
		for _, ask := range []func() error{h.haveIOURing, func() error { return h.haveOp(uring.OpRead) }, h.haveIOURing} {
			if ask() == nil {
				t.Errorf("%v: io_uring is usable, want an error", test.errno)
			}
		}
		if *opens != test.opens {
			t.Errorf("%v: opened %d rings, want %d", test.errno, *opens, test.opens)
		}
	}
}

// A shortage ends. The result after it is cached, and a feature that was asked for during
// the shortage is tried again.
func TestRecovery(t *testing.T) {
	ringtest.NeedRing(t)
	h := newHost()
	real, short := h.open, 2
	h.open = func(o *uring.Options) (*uring.Ring, error) {
		if short--; short >= 0 {
			return nil, setupError(syscall.EMFILE)
		}
		return real(o)
	}
	opens := counting(h)
	for range 2 {
		if err := h.have(multishotPoll); !errors.Is(err, syscall.EMFILE) {
			t.Fatalf("got %v, want EMFILE", err)
		}
	}
	first := h.have(multishotPoll)
	if a, _, _ := describe(first); a == probe.Inconclusive {
		t.Fatal(first)
	}
	before := *opens
	if err := h.have(multishotPoll); err != first || *opens != before {
		t.Errorf("the next calls returned %v, then %v", first, err)
	}
}

// A shortage that begins after a ring was opened successfully is not cached either.
func TestShortageDuringTrial(t *testing.T) {
	ringtest.NeedRing(t)
	h := newHost()
	if err := h.haveIOURing(); err != nil {
		t.Fatal(err)
	}
	real := h.open
	h.open = func(*uring.Options) (*uring.Ring, error) { return nil, setupError(syscall.ENFILE) }
	if err := h.have(bufferRing); !errors.Is(err, syscall.ENFILE) {
		t.Fatalf("got %v, want ENFILE", err)
	}
	h.open = real
	if a, _, _ := describe(h.have(bufferRing)); a == probe.Inconclusive {
		t.Errorf("got %v", h.have(bufferRing))
	}
}

// RINGSIDE_BACKEND=plain forbids io_uring at once, and its result is not cached.
func TestOverride(t *testing.T) {
	ringtest.NeedRing(t)
	h := newHost()
	value := "plain"
	h.getenv = func(key string) string {
		if key == EnvBackend {
			return value
		}
		return ""
	}
	opens := counting(h)
	for _, ask := range []func() error{
		h.haveIOURing,
		func() error { return h.have(multishotPoll) },
		func() error { return h.haveOp(uring.OpRead) },
		func() error { return h.haveFeature(0) },
	} {
		f, ok := errors.AsType[*ForbiddenError](ask())
		if !ok || f.Policy != PolicyEnvironment {
			t.Errorf("got %v", f)
		}
	}
	if *opens != 0 {
		t.Errorf("opened %d rings", *opens)
	}
	value = "io_uring"
	if err := h.haveIOURing(); err != nil {
		t.Errorf("with %q: %v", value, err)
	}
	for _, value = range []string{"off", "Plain", "plain"} { // a misspelt value does not permit io_uring
		if err := h.haveIOURing(); !errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), value) {
			t.Errorf("with %q: %v", value, err)
		}
	}
}

func TestConcurrentProbes(t *testing.T) {
	ringtest.NeedRing(t)
	h := newHost()
	opens, opened := 0, sync.Mutex{}
	real := h.open
	h.open = func(o *uring.Options) (*uring.Ring, error) {
		opened.Lock()
		opens++
		opened.Unlock()
		return real(o)
	}
	want := newHost().collect()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range behaviours {
				b := behaviours[(i+j)%len(behaviours)]
				if got, _, _ := describe(h.have(b)); got != want.Behaviours[(i+j)%len(behaviours)].Answer {
					t.Errorf("%s: %s", b.name, got)
				}
				_ = h.haveOp(uring.Op(i))
				_ = h.haveRegister(uring.RegisterOp(j))
			}
		})
	}
	all.Wait()
	// One ring for the facts, at most one for registers, and one or two for each trial.
	if most := 2 + 2*len(behaviours); opens > most {
		t.Errorf("opened %d rings, want at most %d", opens, most)
	}
}
