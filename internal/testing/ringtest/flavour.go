// SPDX-License-Identifier: MIT

package ringtest

import (
	"runtime"
	"testing"
	"time"

	"github.com/ringside-io/ringside/uring"
)

// Flavour is a kind of ring.
type Flavour struct {
	Name  string
	Since string // the kernel that introduced it
	Opts  uring.Options
}

// Flavours are the rings that kernel tests run over.
var Flavours = []Flavour{
	{"default", "5.6", uring.Options{Entries: 64}},
	{"defer", "6.1", uring.Options{Entries: 64, DeferTaskrun: true}},
	{"coop", "5.19", uring.Options{Entries: 64, CoopTaskrun: true, TaskrunFlag: true, SubmitAll: true}},
	{"sqpoll", "5.13", uring.Options{Entries: 64, SQPoll: true, SQPollIdle: 10 * time.Millisecond}},
	{"tiny-cq", "5.6", uring.Options{Entries: 2, CQEntries: 2}},
}

// OverFlavours runs test once for each flavour that the kernel has, with a
// fresh ring, on a goroutine locked to its thread.
func OverFlavours(t *testing.T, test func(t *testing.T, r *uring.Ring)) {
	t.Helper()
	for _, f := range Flavours {
		t.Run(f.Name, func(t *testing.T) {
			NeedKernel(t, "ring flavour "+f.Name, f.Since)
			runtime.LockOSThread()
			t.Cleanup(runtime.UnlockOSThread) // after the ring is closed
			test(t, Open(t, &f.Opts))
		})
	}
}

// Open opens a ring that is closed when the test ends, and fails the test when
// the kernel refuses.
func Open(t testing.TB, o *uring.Options) *uring.Ring {
	t.Helper()
	NeedRing(t)
	if o == nil {
		o = new(uring.Options)
	}
	r, err := uring.Open(*o)
	if err != nil {
		t.Fatalf("open ring %+v: %v", *o, err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close ring: %v", err)
		}
	})
	return r
}

// Patience is how long a test waits for a completion before it fails.
const Patience = time.Minute

// Await submits the pending entries and reaps n completions; it fails the test when
// they do not arrive.
func Await(t testing.TB, r *uring.Ring, n int) []uring.CQE {
	t.Helper()
	got := make([]uring.CQE, 0, n)
	buf := make([]uring.CQE, n)
	deadline := time.Now().Add(Patience)
	for len(got) < n {
		k := r.Reap(buf[:n-len(got)])
		got = append(got, buf[:k]...)
		if len(got) == n {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d completions after %v: %+v", len(got), n, Patience, got)
		}
		if _, err := r.SubmitAndWaitTimeout(1, time.Second); err != nil {
			t.Fatalf("submit and wait: %v", err)
		}
	}
	return got
}

// Do fills one entry, submits it and returns its completion.
func Do(t testing.TB, r *uring.Ring, build func(e *uring.SQE)) uring.CQE {
	t.Helper()
	e := r.SQE()
	if e == nil {
		t.Fatal("submission queue full")
	}
	build(e)
	c := Await(t, r, 1)[0]
	runtime.KeepAlive(build) // and the variables that it captures
	return c
}
