// SPDX-License-Identifier: MIT

package uring_test

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func kernelSetupIOPoll(t *testing.T) { testIOPoll(t, "IOPOLL", "5.1", uring.Options{IOPoll: true}) }

func kernelSetupHybridIOPoll(t *testing.T) {
	testIOPoll(t, "HYBRID_IOPOLL", "6.13", uring.Options{HybridIOPoll: true})
}

// testIOPoll checks what only rings with IOPoll do: they refuse every operation that cannot
// be polled.
func testIOPoll(t *testing.T, name, since string, o uring.Options) {
	ringtest.NeedKernel(t, name, since)
	fd := ctlDirectFile(t, 'p')
	zero := ctlOpen(t, "/dev/zero", 0)
	r := ctlRing(t, o)
	buf := sys.AlignedBytes(4096, 4096)
	read := func(fd int) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.Read(uring.Fd(fd), buf, 0) })
	}
	if c := read(zero); c.Errno() != syscall.EOPNOTSUPP && c.Errno() != syscall.EINVAL {
		t.Errorf("a read without O_DIRECT: %+v, want EOPNOTSUPP or EINVAL", c)
	}
	if c := ringtest.Do(t, r, func(e *uring.SQE) { e.PollAdd(uring.Fd(zero), 1) }); c.Errno() != syscall.EINVAL {
		t.Errorf("a poll: %+v, want EINVAL", c)
	}
	switch c := read(fd); {
	case c.Errno() == syscall.EOPNOTSUPP:
		t.Log("the device has no poll queues")
	case c.Res != 4096 || buf[0] != 'p' || buf[4095] != 'p':
		t.Errorf("a direct read: %+v, data %q", c, buf[:8])
	}
	runtime.KeepAlive(buf)
}

func kernelSetupSQPoll(t *testing.T) {
	ringtest.NeedKernel(t, "SQPOLL without privileges", "5.13")
	before := ctlThreads(t, "iou-sqp-")
	r := ctlRing(t, uring.Options{Entries: 8, SQPoll: true, SQPollIdle: 50 * time.Millisecond})
	ctlNops(t, r, 1, 1) // a thread gets its name when it starts to run
	if n := len(ctlNewThreads(t, "iou-sqp-", before)); n != 1 {
		t.Errorf("%d submission threads, want 1", n)
	}
	asleep := func() bool { return r.SQFlags()&uring.SQNeedWakeup != 0 }
	// While the SQPOLL thread is awake no call enters the kernel. It may fall asleep at any
	// time, so this can take several attempts.
	ctlUntil(t, "a submission without a system call", func() bool {
		ctlNops(t, r, 1, 2) // the enter wakes the thread
		awake := !asleep()
		ctlNext(t, r).Nop().SetUserData(3)
		flushes := r.CQFlushes()
		n, err := r.Submit()
		if n != 1 || err != nil {
			t.Fatalf("submit: %d, %v", n, err)
		}
		for awake && r.Ready() == 0 && !asleep() {
			runtime.Gosched()
		}
		got := ringtest.Await(t, r, 1)
		return awake && got[0].UserData == 3 && r.CQFlushes() == flushes
	})
	for range 3 {
		ctlUntil(t, "the thread sleeps", asleep)
		ctlNext(t, r).Nop().SetUserData(4)
		if n, err := r.Submit(); n != 1 || err != nil {
			t.Fatalf("submit to a sleeping thread: %d, %v", n, err)
		}
		ctlUntil(t, "the completion", func() bool { return r.Ready() == 1 })
		if got := ringtest.Await(t, r, 1); got[0].UserData != 4 {
			t.Fatalf("completion %+v", got[0])
		}
	}
	ctlUntil(t, "the thread sleeps", asleep)
	if n, err := r.Submit(); n != 0 || err != nil || !asleep() {
		t.Errorf("nothing to submit: %d, %v, asleep %v; want 0 and the thread still asleep", n, err, asleep())
	}
}

func kernelSetupSQAff(t *testing.T) {
	ringtest.NeedKernel(t, "SQPOLL without privileges", "5.13")
	before := ctlThreads(t, "iou-sqp-")
	for _, cpu := range ctlCPUs(t, 0) {
		r := ctlRing(t, uring.Options{SQPoll: true, SQPollPinned: true, SQPollCPU: uint32(cpu)})
		ctlNops(t, r, 1, 3)
		tids := ctlNewThreads(t, "iou-sqp-", before)
		if len(tids) != 1 {
			t.Fatalf("%d new submission threads", len(tids))
		}
		if got := ctlCPUs(t, tids[0]); !slices.Equal(got, []int{cpu}) {
			t.Errorf("the thread runs on %v, want %d", got, cpu)
		}
		ctlOK(t, "close", r.Close())
		ctlUntil(t, "the thread ends", func() bool { return !slices.Contains(ctlThreads(t, "iou-sqp-"), tids[0]) })
	}
	_, err := uring.Open(uring.Options{SQPoll: true, SQPollPinned: true, SQPollCPU: 1 << 20})
	ctlErrno(t, "a processor that does not exist", err, syscall.EINVAL)
}

// kernelSetupAttachWQ counts SQPOLL threads: two rings that are attached share one.
func kernelSetupAttachWQ(t *testing.T) {
	ringtest.NeedKernel(t, "SQPOLL without privileges", "5.13")
	before := ctlThreads(t, "iou-sqp-")
	want := func(r *uring.Ring, n int) {
		t.Helper()
		ctlNops(t, r, 1, 5) // a thread gets its name when it starts to run
		if got := len(ctlNewThreads(t, "iou-sqp-", before)); got != n {
			t.Errorf("%d submission threads, want %d", got, n)
		}
	}
	first := ctlRing(t, uring.Options{SQPoll: true})
	want(first, 1)
	want(ctlRing(t, uring.Options{SQPoll: true, AttachWQ: first}), 1)
	want(ctlRing(t, uring.Options{SQPoll: true}), 2)
	plain := ctlRing(t, uring.Options{})
	ctlNops(t, ctlRing(t, uring.Options{AttachWQ: plain}), 1, 5)

	ctlOK(t, "close", plain.Close())
	if _, err := uring.Open(uring.Options{AttachWQ: plain}); err == nil {
		t.Error("attached to a closed ring")
	}
}
