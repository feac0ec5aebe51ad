// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/uring"
)

// stubborn marks the child process of TestSubmitterThatStaysOut.
const stubborn = "RINGSIDE_TEST_STUBBORN"

// TestSubmitterThatStaysOut has a thread that submits an operation and then makes no system
// call until that operation has completed, the worst case for a ring with cooperative task
// work.
func TestSubmitterThatStaysOut(t *testing.T) {
	if os.Getenv(stubborn) != "" {
		stayOut(t)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSubmitterThatStaysOut$", "-test.v")
	child.Env = append(os.Environ(), stubborn+"=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=4")
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("the operation did not complete: %v\n%s", err, out)
	}
}

// stayOut runs in the child. Without preemption, its loop can only be interrupted by
// interrupts.
func stayOut(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := open(t, Options{Loops: 1})
	rd, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	defer wr.Close()
	var out, done atomic.Bool
	go func() {
		for !out.Load() {
			runtime.Gosched()
		}
		_, _ = wr.Write([]byte{1})
	}()
	var e uring.SQE
	buf := make([]byte, 1)
	e.Read(uring.Fd(int(rd.Fd())), buf, 0) // Fd makes the descriptor blocking
	if _, err := r.Queue(&Op{SQE: e, Buf: buf}, func(Result) { done.Store(true) }); err != nil {
		t.Fatal(err)
	}
	out.Store(true)
	for !done.Load() {
	}
}
