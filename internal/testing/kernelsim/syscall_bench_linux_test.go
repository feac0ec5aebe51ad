// SPDX-License-Identifier: MIT

package kernelsim

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// hookBench is a simulated kernel with one ring of package uring.
type hookBench struct {
	*testing.T
	k    *Kernel
	r    *uring.Ring
	want string                 // the expected violation, "" for none
	got  map[uint64][]uring.CQE // the last completion by user data
	kept [][]byte               // memory that the kernel has must not be collected
}

// memory returns memory that stays reachable.
func (b *hookBench) memory(n int) []byte {
	p := make([]byte, n)
	b.kept = append(b.kept, p)
	return p
}

// flavours are rings that differ in their layout and in when completions are posted.
var flavours = map[string]uring.Options{
	"plain":    {Entries: 8},
	"deferred": {Entries: 8, DeferTaskrun: true, NoSQArray: true},
	"disabled": {Entries: 8, DeferTaskrun: true, Disabled: true},
}

// onHookBench runs do with a ring of the given kind.
func onHookBench(t *testing.T, o uring.Options, p Plan, do func(b *hookBench)) {
	t.Helper()
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	k := New(Options{Seed: 1, Plan: p})
	b := &hookBench{T: t, k: k, got: make(map[uint64][]uring.CQE)}
	defer runtime.KeepAlive(b)
	defer k.Close()
	sys.SetSimulator(k)
	defer sys.SetSimulator(nil)
	r, err := uring.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if o.Disabled {
		if err := r.Enable(); err != nil {
			t.Fatal(err)
		}
	}
	b.r = r
	do(b)
	if err := r.CloseNow(); err != nil { // operations may be in flight
		t.Error(err)
	}
	switch v := strings.Join(k.Violations(), "; "); {
	case b.want == "" && v != "":
		t.Errorf("violations: %s", v)
	case !strings.Contains(v, b.want):
		t.Errorf("violations %q, want one about %q", v, b.want)
	}
}

// add fills an entry.
func (b *hookBench) add(ud uint64, build func(e *uring.SQE)) *uring.SQE {
	e := b.r.SQE()
	if e == nil {
		b.Fatal("the submission queue is full")
	}
	build(e)
	return e.SetUserData(ud)
}

// submit submits all entries and reaps the completions.
func (b *hookBench) submit() {
	b.Helper()
	if _, err := b.r.Submit(); err != nil {
		b.Fatal(err)
	}
	b.reap()
}

func (b *hookBench) reap() {
	var buf [3]uring.CQE
	for n := len(buf); n == len(buf); {
		n = b.r.Reap(buf[:])
		for _, c := range buf[:n] {
			b.got[c.UserData] = append(b.got[c.UserData], c)
		}
	}
}

// last waits until an operation has n completions, and returns the last.
func (b *hookBench) last(ud uint64, n int) uring.CQE {
	b.Helper()
	for end := time.Now().Add(ringtest.Patience); len(b.got[ud]) < n; b.reap() {
		if time.Now().After(end) {
			b.Fatalf("%d completions of %d, want %d", len(b.got[ud]), ud, n)
		}
		if _, err := b.r.SubmitAndWaitTimeout(1, time.Millisecond); err != nil {
			b.Fatal(err)
		}
	}
	return b.got[ud][n-1]
}

// res checks the result of the last completion.
func (b *hookBench) res(ud uint64, n int, want int32) uring.CQE {
	b.Helper()
	c := b.last(ud, n)
	if c.Res != want {
		b.Errorf("completion %d of %d is %d, want %d", n, ud, c.Res, want)
	}
	return c
}

// pair returns two ends of a connection.
func (b *hookBench) pair() (a, c int) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = syscall.Close(fds[0]), syscall.Close(fds[1]) })
	return fds[0], fds[1]
}

func (b *hookBench) write(fd int, s string) {
	if _, err := syscall.Write(fd, []byte(s)); err != nil {
		b.Fatal(err)
	}
}
