// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerRegister(uring.OpRegisterClock, row{since: "6.12", uses: []string{"Ring.SetClock", "WaitOptions.Deadline"}, kernel: kernelRegisterClock})
	ledgerRegister(uring.OpRegisterMemRegion, row{since: "6.13", uses: []string{"Ring.RegisterWaitRegion", "WaitRegion.Slot", "WaitSlot.Set", "WaitOptions.Registered"}, kernel: kernelRegisterMemRegion})
	ledgerRegister(uring.OpRegisterNAPI, row{since: "6.9", uses: []string{"Ring.SetNAPI", "Ring.AddNAPI", "Ring.RemoveNAPI"}, kernel: kernelRegisterNAPI})
	ledgerRegister(uring.OpUnregisterNAPI, row{since: "6.9", uses: []string{"Ring.ClearNAPI"}, kernel: kernelUnregisterNAPI})
}

func kernelRegisterClock(t *testing.T) {
	ringtest.NeedKernel(t, "CLOCK", "6.12")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		for _, clock := range []uring.Clock{uring.ClockMonotonic, uring.ClockBoottime} {
			ctlOK(t, "clock", r.SetClock(clock))
			now := func() time.Duration { return ctlClock(t, uint32(clock)) }
			// The clocks differ only after the machine was suspended, so this test cannot
			// distinguish them; but a deadline must be met on either.
			for range 3 {
				deadline := now() + 10*time.Millisecond
				ctlUntil(t, "the deadline ends the wait", func() bool {
					ctlTook(t, r, uring.WaitOptions{Count: 1, Deadline: deadline})
					return now() >= deadline
				})
			}
			for _, over := range []time.Duration{-1, 1, now() - time.Millisecond} {
				ctlTook(t, r, uring.WaitOptions{Count: 1, Deadline: over})
			}
			atLeast(t, 5*time.Millisecond, func() time.Duration {
				return ctlTook(t, r, uring.WaitOptions{Count: 1, Timeout: 5 * time.Millisecond})
			})
		}
		const realtime = 0
		ctlErrno(t, "a wall clock", r.SetClock(realtime), syscall.EINVAL)
	})
}

func kernelRegisterMemRegion(t *testing.T) {
	ringtest.NeedKernel(t, "MEM_REGION", "6.13")
	r := ctlRing(t, uring.Options{Disabled: true})
	region, err := r.RegisterWaitRegion(3)
	ctlOK(t, "register", err)
	_, err = r.RegisterWaitRegion(1)
	ctlErrno(t, "register twice", err, syscall.EBUSY)
	if _, err = r.RegisterWaitRegion(0); err == nil {
		t.Error("a region without slots is accepted")
	}
	ctlOK(t, "enable", r.Enable())

	const d = 20 * time.Millisecond
	short, long, least := region.Slot(0), region.Slot(1), region.Slot(2)
	short.Set(d, 0)
	long.Set(time.Hour, 0)
	least.Set(time.Hour, d)
	atLeast(t, d, func() time.Duration { return ctlTook(t, r, uring.WaitOptions{Count: 1, Registered: short}) })
	ctlNext(t, r).Nop()
	if n, err := r.Wait(uring.WaitOptions{Count: 1, Registered: long}); n != 1 || err != nil || r.Ready() != 1 {
		t.Errorf("submit and wait: %d, %v, %d ready", n, err, r.Ready())
	}
	// One completion is there and two are wanted: the minimum wait time ends the wait.
	atLeast(t, d, func() time.Duration { return ctlTook(t, r, uring.WaitOptions{Count: 2, Registered: least}) })
	ringtest.Await(t, r, 1)
	stop := ctlHarass(t, ctlThreadID())
	ctlTook(t, r, uring.WaitOptions{Count: 1, Registered: long})
	stop()
	short.Set(-1, 0)
	ctlTook(t, r, uring.WaitOptions{Count: 1, Registered: short})

	enabled := ctlRing(t, uring.Options{})
	_, err = enabled.RegisterWaitRegion(1)
	ctlErrno(t, "register with an enabled ring", err, syscall.EINVAL)
	_, err = enabled.Wait(uring.WaitOptions{Count: 1, Registered: short})
	if err == nil {
		t.Error("a ring without a region waits by the region of another ring")
	}
}

func kernelRegisterNAPI(t *testing.T) {
	ringtest.NeedKernel(t, "NAPI", "6.9")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		first := uring.NAPI{Timeout: 70 * time.Microsecond, Prefer: true}
		old, err := r.SetNAPI(first)
		ctlOK(t, "set", err)
		if old.Timeout != 0 || old.Prefer || old.Static {
			t.Errorf("settings before: %+v", old)
		}
		old, err = r.SetNAPI(uring.NAPI{Timeout: 30 * time.Microsecond})
		if err != nil || old != first {
			t.Errorf("settings before: %+v, %v; want %+v", old, err, first)
		}
		// Busy polling replaces sleeping and changes nothing else.
		a, b := ctlTCP(t)
		ctlWrite(t, a, []byte("napi"))
		buf := make([]byte, 8)
		if c := ringtest.Do(t, r, func(e *uring.SQE) { e.Recv(uring.Fd(b), buf, 0) }); c.Res != 4 || string(buf[:4]) != "napi" {
			t.Errorf("receive: %+v, %q", c, buf[:4])
		}
		ctlTook(t, r, uring.WaitOptions{Count: 1, Timeout: time.Millisecond})
		if ctlHasKernel(t, "6.13") {
			staticNAPI(t, r)
		}
	})
}

func staticNAPI(t *testing.T, r *uring.Ring) {
	t.Helper()
	const id = 1 << 20 // lower ids are numbers of processors
	ctlErrno(t, "add without Static", r.AddNAPI(id), syscall.EINVAL)
	_, err := r.SetNAPI(uring.NAPI{Timeout: 10 * time.Microsecond, Static: true})
	ctlOK(t, "set", err)
	ctlOK(t, "add", r.AddNAPI(id))
	ctlErrno(t, "add twice", r.AddNAPI(id), syscall.EEXIST)
	ctlErrno(t, "add no id", r.AddNAPI(0), syscall.EINVAL)
	ctlOK(t, "remove", r.RemoveNAPI(id))
	ctlErrno(t, "remove twice", r.RemoveNAPI(id), syscall.ENOENT)
	if old, err := r.SetNAPI(uring.NAPI{}); err != nil || !old.Static {
		t.Errorf("settings before: %+v, %v", old, err)
	}
}

func kernelUnregisterNAPI(t *testing.T) {
	ringtest.NeedKernel(t, "NAPI", "6.9")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		if old, err := r.ClearNAPI(); err != nil || old.Timeout != 0 {
			t.Errorf("settings before: %+v, %v", old, err)
		}
		n := uring.NAPI{Timeout: 40 * time.Microsecond, Prefer: true}
		_, err := r.SetNAPI(n)
		ctlOK(t, "set", err)
		if old, err := r.ClearNAPI(); err != nil || old != n {
			t.Errorf("settings before: %+v, %v; want %+v", old, err, n)
		}
		if old, err := r.ClearNAPI(); err != nil || old.Timeout != 0 || old.Prefer {
			t.Errorf("settings after: %+v, %v", old, err)
		}
		ctlNops(t, r, 1, 3)
	})
	polled := ctlRing(t, uring.Options{IOPoll: true})
	_, err := polled.SetNAPI(uring.NAPI{Timeout: time.Microsecond})
	ctlErrno(t, "on a ring that polls devices", err, syscall.EINVAL)
}
