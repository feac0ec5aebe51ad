// SPDX-License-Identifier: MIT

package uring_test

import (
	"errors"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// ctlRing opens a ring on a goroutine that is locked to its thread until the test ends, as
// rings with a single issuer require.
func ctlRing(t *testing.T, o uring.Options) *uring.Ring {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	return ringtest.Open(t, &o)
}

// ctlNext returns a free entry.
func ctlNext(t testing.TB, r *uring.Ring) *uring.SQE {
	t.Helper()
	e := r.SQE()
	if e == nil {
		t.Fatal("the submission queue is full")
	}
	return e
}

// ctlNops submits NOPs with the user data from first to last and waits until all have
// completed, in order.
func ctlNops(t testing.TB, r *uring.Ring, first, last uint64) {
	t.Helper()
	for at := first; at <= last; {
		n := 0
		for ; at <= last && r.SQSpace() > 0; n++ {
			ctlNext(t, r).Nop().SetUserData(at)
			at++
		}
		got := ringtest.Await(t, r, n)
		for i, c := range got {
			if want := at - uint64(n-i); c.UserData != want || c.Res != 0 {
				t.Fatalf("completion %+v, want a NOP with user data %d", c, want)
			}
		}
	}
}

// ctlUntil waits until ok returns true.
func ctlUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(ringtest.Patience); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, ringtest.Patience)
		}
	}
}

// ctlNewThreads returns the threads with that name which are not in before: threads of an
// earlier ring may still be ending.
func ctlNewThreads(t testing.TB, prefix string, before []int) []int {
	t.Helper()
	return slices.DeleteFunc(ctlThreads(t, prefix), func(tid int) bool { return slices.Contains(before, tid) })
}

// ctlErrno fails unless err is the errno.
func ctlErrno(t testing.TB, what string, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

func ctlOK(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// ctlElsewhere runs f on another thread and waits for it.
func ctlElsewhere(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends when f returns
		defer close(done)
		f()
	}()
	<-done
}

// ctlSubmit submits and fails unless the kernel takes n entries.
func ctlSubmit(t testing.TB, r *uring.Ring, n int) {
	t.Helper()
	if got, err := r.Submit(); got != n || err != nil {
		t.Fatalf("submit: %d, %v; want %d", got, err, n)
	}
}
