// SPDX-License-Identifier: MIT

package uring_test

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// erestartsys is an errno that the kernel uses internally and does not mean to return.
const erestartsys = unix.Errno(512)

// TestCancelRunning cancels an operation that a worker thread may or may not have begun: it
// blocks in open(2) of a FIFO without a writer. The result of the cancellation and the
// completion of the target must agree.
func TestCancelRunning(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		name := filepath.Join(t.TempDir(), "fifo")
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		answers := map[unix.Errno]int{}
		for i := range 20 {
			answer, target := cancelOpen(t, r, name, time.Duration(i)*100*time.Microsecond)
			answers[answer.Errno()]++
			checkCancelled(t, answer, target)
		}
		t.Logf("cancellations by errno: %v", answers)
	})
}

// cancelOpen begins to open a FIFO, cancels that after a while, and returns the
// two completions.
func cancelOpen(t *testing.T, r *uring.Ring, name string, after time.Duration) (answer, target uring.CQE) {
	path, err := uring.NewPath(name)
	if err != nil {
		t.Fatal(err)
	}
	delay := newTimespec(after)
	keep(t, path, delay)
	push(t, r).OpenAt(uring.AtCWD, path, unix.O_RDONLY|unix.O_CLOEXEC, 0).SetFlags(uring.SQEAsync).SetUserData(1)
	push(t, r).Timeout(delay, 0, 0).SetUserData(2)
	done := map[uint64]uring.CQE{}
	await := func(id uint64) {
		for done[id].UserData != id {
			c := ringtest.Await(t, r, 1)[0]
			done[c.UserData] = c
		}
	}
	await(2)
	push(t, r).Cancel(1).SetUserData(3)
	await(3)
	if done[1].UserData != 1 {
		defer awaitReader(t, r, name, done[3])()
		await(1)
	}
	return done[3], done[1]
}

// awaitReader waits until the open of the FIFO has completed. A cancellation may have left
// it blocked: then only a writer can release it. closeWriter closes that writer.
func awaitReader(t *testing.T, r *uring.Ring, name string, answer uring.CQE) (closeWriter func()) {
	writer := -1
	for deadline := time.Now().Add(ringtest.Patience); r.Ready() == 0; {
		if _, err := r.SubmitAndWaitTimeout(1, 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if r.Ready() == 0 && writer < 0 {
			// The open fails while there is no reader.
			writer, _ = unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the target does not complete; the cancellation completed with %+v (%v), writer %d", answer, answer.Err(), writer)
		}
	}
	return func() {
		if writer >= 0 {
			unix.Close(writer)
		}
	}
}

func checkCancelled(t *testing.T, answer, target uring.CQE) {
	t.Helper()
	interrupted := target.Errno() == unix.EINTR || target.Errno() == erestartsys
	ok := false
	switch answer.Errno() {
	case 0: // the target was waiting for a worker
		ok = target.Errno() == unix.ECANCELED
	case unix.EALREADY: // the target was running and may end either way
		ok = interrupted || target.Errno() == unix.ECANCELED || target.Res >= 0
	case unix.ENOENT:
		// The worker was interrupted before, or was starting the operation, where 6.1 does
		// not find it.
		ok = interrupted || target.Res >= 0
	}
	if !ok {
		t.Fatalf("cancel %+v (%v), target %+v (%v)", answer, answer.Err(), target, target.Err())
	}
	if target.Res >= 0 {
		unix.Close(int(target.Res))
	}
}
