// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpTimeout, row{
		since:   "5.4",
		uses:    []string{"SQE.Timeout"},
		goldens: timeoutGoldens,
		kernel:  kernelTimeout,
	})
	ledgerOp(uring.OpTimeoutRemove, row{
		since:   "5.5",
		uses:    []string{"SQE.TimeoutRemove", "SQE.TimeoutUpdate", "SQE.LinkTimeoutUpdate"},
		goldens: timeoutRemoveGoldens,
		kernel:  kernelTimeoutRemove,
	})
	ledgerOp(uring.OpLinkTimeout, row{
		since:   "5.5",
		uses:    []string{"SQE.LinkTimeout"},
		goldens: linkTimeoutGoldens,
		kernel:  kernelLinkTimeout,
	})
}

// Times that entries point to; they are never written.
var (
	anHour   = newTimespec(time.Hour)
	fiveMsec = newTimespec(5 * time.Millisecond)
	anMsec   = newTimespec(time.Millisecond)
	aNsec    = newTimespec(1)
	negative = newTimespec(-time.Second)
	hourAddr = addressOf(anHour)
)

func newTimespec(d time.Duration) *uring.Timespec {
	ts := uring.NewTimespec(d)
	return &ts
}

var timeoutGoldens = []golden{
	{"relative", func(e *uring.SQE) { e.Timeout(anHour, 0, 0) },
		abi.SQE{Opcode: 11, Fd: -1, Addr: hourAddr, Len: 1}},
	{"count", func(e *uring.SQE) { e.Timeout(anHour, 0xfffffffe, 0) },
		abi.SQE{Opcode: 11, Fd: -1, Off: 0xfffffffe, Addr: hourAddr, Len: 1}},
	{"absolute boottime", func(e *uring.SQE) { e.Timeout(anHour, 0, uring.TimeoutAbs|uring.TimeoutBoottime) },
		abi.SQE{Opcode: 11, Fd: -1, Addr: hourAddr, Len: 1, OpFlags: 1<<0 | 1<<2}},
	{"realtime success", func(e *uring.SQE) { e.Timeout(anHour, 0, uring.TimeoutRealtime|uring.TimeoutSuccess) },
		abi.SQE{Opcode: 11, Fd: -1, Addr: hourAddr, Len: 1, OpFlags: 1<<3 | 1<<5}},
	{"multishot", func(e *uring.SQE) { e.Timeout(anHour, 3, uring.TimeoutMultishot) },
		abi.SQE{Opcode: 11, Fd: -1, Off: 3, Addr: hourAddr, Len: 1, OpFlags: 1 << 6}},
}

var timeoutRemoveGoldens = []golden{
	{"remove", func(e *uring.SQE) { e.TimeoutRemove(0x1122334455667788) },
		abi.SQE{Opcode: 12, Fd: -1, Addr: 0x1122334455667788}},
	{"update", func(e *uring.SQE) { e.TimeoutUpdate(5, anHour, 0) },
		abi.SQE{Opcode: 12, Fd: -1, Off: hourAddr, Addr: 5, OpFlags: 1 << 1}},
	{"update absolute", func(e *uring.SQE) { e.TimeoutUpdate(5, anHour, uring.TimeoutAbs) },
		abi.SQE{Opcode: 12, Fd: -1, Off: hourAddr, Addr: 5, OpFlags: 1<<1 | 1<<0}},
	{"update link", func(e *uring.SQE) { e.LinkTimeoutUpdate(5, anHour, 0) },
		abi.SQE{Opcode: 12, Fd: -1, Off: hourAddr, Addr: 5, OpFlags: 1<<1 | 1<<4}},
	{"update link absolute", func(e *uring.SQE) { e.LinkTimeoutUpdate(5, anHour, uring.TimeoutAbs) },
		abi.SQE{Opcode: 12, Fd: -1, Off: hourAddr, Addr: 5, OpFlags: 1<<1 | 1<<4 | 1<<0}},
}

var linkTimeoutGoldens = []golden{
	{"relative", func(e *uring.SQE) { e.LinkTimeout(anHour, 0) },
		abi.SQE{Opcode: 15, Fd: -1, Addr: hourAddr, Len: 1}},
	{"absolute realtime", func(e *uring.SQE) { e.LinkTimeout(anHour, uring.TimeoutAbs|uring.TimeoutRealtime) },
		abi.SQE{Opcode: 15, Fd: -1, Addr: hourAddr, Len: 1, OpFlags: 1<<0 | 1<<3}},
}

func kernelTimeout(t *testing.T) {
	t.Run("time", func(t *testing.T) { ringtest.OverFlavours(t, timeoutTime) })
	t.Run("count", func(t *testing.T) { ringtest.OverFlavours(t, timeoutCount) })
	t.Run("success", func(t *testing.T) { ringtest.OverFlavours(t, timeoutSuccess) })
	t.Run("multishot", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_TIMEOUT_MULTISHOT", "6.4")
		ringtest.OverFlavours(t, timeoutMultishot)
	})
}

func timeoutTime(t *testing.T, r *uring.Ring) {
	const d = 5 * time.Millisecond
	now := newTimespec(time.Duration(time.Now().UnixNano()))
	keep(t, now)
	for name, want := range map[string]struct {
		ts    *uring.Timespec
		flags uring.TimeoutFlags
		after time.Duration
	}{
		"relative":          {fiveMsec, 0, d},
		"boottime":          {fiveMsec, uring.TimeoutBoottime, d},
		"past":              {aNsec, uring.TimeoutAbs, 0},
		"boottime past":     {aNsec, uring.TimeoutAbs | uring.TimeoutBoottime, 0},
		"realtime past":     {now, uring.TimeoutAbs | uring.TimeoutRealtime, 0},
		"realtime relative": {fiveMsec, uring.TimeoutRealtime, d},
	} {
		start := time.Now()
		c := ringtest.Do(t, r, func(e *uring.SQE) { e.Timeout(want.ts, 0, want.flags) })
		if c.Errno() != syscall.ETIME || c.Has(uring.CQEMore) {
			t.Errorf("%s: completion %+v (%v)", name, c, c.Err())
		}
		if took := time.Since(start); took < want.after {
			t.Errorf("%s: completed after %v instead of %v", name, took, want.after)
		}
	}
	for name, build := range map[string]func(e *uring.SQE){
		"negative":           func(e *uring.SQE) { e.Timeout(negative, 0, 0) },
		"two clocks":         func(e *uring.SQE) { e.Timeout(anMsec, 0, uring.TimeoutBoottime|uring.TimeoutRealtime) },
		"absolute multishot": func(e *uring.SQE) { e.Timeout(anMsec, 0, uring.TimeoutAbs|uring.TimeoutMultishot) },
	} {
		if c := ringtest.Do(t, r, build); c.Errno() != syscall.EINVAL {
			t.Errorf("%s: completion %+v (%v)", name, c, c.Err())
		}
	}
}

func timeoutCount(t *testing.T, r *uring.Ring) {
	push(t, r).Timeout(anHour, 2, 0).SetUserData(1)
	push(t, r).Nop().SetUserData(2)
	push(t, r).Nop().SetUserData(3)
	m := byUserData(t, r, 3)
	for _, id := range []uint64{1, 2, 3} {
		wantRes(t, m[id], 0)
	}
}

// timeoutSuccess links a NOP behind a timeout. A timeout fails when it expires, unless a
// flag makes that a success.
func timeoutSuccess(t *testing.T, r *uring.Ring) {
	for flags, want := range map[uring.TimeoutFlags]syscall.Errno{0: syscall.ECANCELED, uring.TimeoutSuccess: 0} {
		push(t, r).Timeout(anMsec, 0, flags).SetFlags(uring.SQELink).SetUserData(1)
		push(t, r).Nop().SetUserData(2)
		m := byUserData(t, r, 2)
		wantErrno(t, m[1], syscall.ETIME)
		wantErrno(t, m[2], want)
	}
}

func timeoutMultishot(t *testing.T, r *uring.Ring) {
	const count = 5
	start := time.Now()
	push(t, r).Timeout(anMsec, count, uring.TimeoutMultishot).SetUserData(1)
	for i := 1; ; i++ {
		c := await(t, r, 1)
		wantErrno(t, c, syscall.ETIME)
		if took := time.Since(start); took < time.Duration(i)*time.Millisecond {
			t.Fatalf("completion %d after %v", i, took)
		}
		if c.Has(uring.CQEMore) && i < count {
			continue
		}
		wantMore(t, c, false)
		if i < count && r.CQEntries() > count {
			t.Fatalf("ended after %d of %d", i, count)
		}
		break
	}
	wantQuiet(t, r)

	push(t, r).Timeout(anHour, 0, uring.TimeoutMultishot).SetUserData(1)
	push(t, r).TimeoutRemove(1).SetUserData(2)
	m := byUserData(t, r, 2)
	wantRes(t, m[2], 0)
	wantErrno(t, m[1], syscall.ECANCELED)
}

func kernelTimeoutRemove(t *testing.T) {
	t.Run("remove", func(t *testing.T) { ringtest.OverFlavours(t, timeoutRemove) })
	t.Run("update", func(t *testing.T) { ringtest.OverFlavours(t, timeoutUpdate) })
	t.Run("link", func(t *testing.T) { ringtest.OverFlavours(t, linkTimeoutUpdate) })
}

func timeoutRemove(t *testing.T, r *uring.Ring) {
	push(t, r).Timeout(anHour, 0, 0).SetUserData(1)
	push(t, r).TimeoutRemove(1).SetUserData(2)
	m := byUserData(t, r, 2)
	wantRes(t, m[2], 0)
	wantErrno(t, m[1], syscall.ECANCELED)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.TimeoutRemove(1) }), syscall.ENOENT)
}

func timeoutUpdate(t *testing.T, r *uring.Ring) {
	for _, to := range []struct {
		ts    *uring.Timespec
		flags uring.TimeoutFlags
	}{{anMsec, 0}, {aNsec, uring.TimeoutAbs}} {
		push(t, r).Timeout(anHour, 0, 0).SetUserData(1)
		push(t, r).TimeoutUpdate(1, to.ts, to.flags).SetUserData(2)
		m := byUserData(t, r, 2)
		wantRes(t, m[2], 0)
		wantErrno(t, m[1], syscall.ETIME)
	}
	push(t, r).Timeout(anHour, 0, 0).SetUserData(1)
	push(t, r).TimeoutUpdate(1, anMsec, uring.TimeoutBoottime).SetUserData(2)
	wantErrno(t, await(t, r, 2), syscall.EINVAL) // as documented, the timeout keeps its clock
	cancelAll(t, r, 1)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.TimeoutUpdate(1, anMsec, 0) }), syscall.ENOENT)
}

func linkTimeoutUpdate(t *testing.T, r *uring.Ring) {
	rd, _ := osPipe(t)
	push(t, r).PollAdd(fdOf(rd), pollIn).SetFlags(uring.SQELink).SetUserData(1)
	push(t, r).LinkTimeout(anHour, 0).SetUserData(2)
	push(t, r).TimeoutUpdate(2, anMsec, 0).SetUserData(3)
	wantErrno(t, await(t, r, 3), syscall.ENOENT) // the timeout is linked
	push(t, r).LinkTimeoutUpdate(2, anMsec, 0).SetUserData(4)
	m := byUserData(t, r, 3)
	wantRes(t, m[4], 0)
	wantErrno(t, m[1], syscall.ECANCELED)
	wantErrno(t, m[2], syscall.ETIME)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.LinkTimeoutUpdate(2, anMsec, 0) }), syscall.ENOENT)
}

func kernelLinkTimeout(t *testing.T) {
	t.Run("outcomes", func(t *testing.T) { ringtest.OverFlavours(t, linkTimeoutOutcomes) })
	t.Run("race", func(t *testing.T) { ringtest.OverFlavours(t, linkTimeoutRace) })
}

func linkTimeoutOutcomes(t *testing.T, r *uring.Ring) {
	rd, wr := osPipe(t)
	linked := func(op uring.SQEFlags, fd uring.FD, ts *uring.Timespec) map[uint64]uring.CQE {
		push(t, r).PollAdd(fd, pollIn|pollOut).SetFlags(op).SetUserData(1)
		push(t, r).LinkTimeout(ts, 0).SetUserData(2)
		return byUserData(t, r, 2)
	}
	for _, op := range []uring.SQEFlags{uring.SQELink, uring.SQEHardLink} {
		m := linked(op, fdOf(rd), anMsec)
		wantErrno(t, m[1], syscall.ECANCELED)
		wantErrno(t, m[2], syscall.ETIME)
		m = linked(op, fdOf(wr), anHour)
		wantRes(t, m[1], pollOut)
		wantErrno(t, m[2], syscall.ECANCELED)
	}
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.LinkTimeout(anMsec, 0) }), syscall.EINVAL)
}

// linkTimeoutRace lets data arrive when a linked timeout fires. Either the read returns the
// byte, or the pipe still holds it; both operations always complete.
func linkTimeoutRace(t *testing.T, r *uring.Ring) {
	rd, wr := osPipe(t)
	buf := make([]byte, 1)
	var times [8]uring.Timespec
	for i := range times {
		times[i] = uring.NewTimespec(time.Duration(i) * 10 * time.Microsecond)
	}
	keep(t, &times, buf)
	outcomes := map[syscall.Errno]int{}
	for i := range 200 {
		push(t, r).Read(fdOf(rd), buf, 0).SetFlags(uring.SQELink).SetUserData(1)
		push(t, r).LinkTimeout(&times[i%len(times)], 0).SetUserData(2)
		runTaskWork(t, r)
		write(t, wr, string(rune('a'+i%26)))
		m := byUserData(t, r, 2)
		switch read, timeout := m[1], m[2]; {
		case read.Res == 1:
			// Even ETIME is allowed: a read that is asked to stop may still succeed.
			if e := timeout.Errno(); e != syscall.ECANCELED && e != syscall.ETIME && e != syscall.ENOENT && e != syscall.EALREADY {
				t.Fatalf("the read succeeded, the timeout completed with %+v", timeout)
			}
		case read.Errno() == syscall.ECANCELED || read.Errno() == syscall.EINTR:
			// Even ENOENT is allowed, on 6.1: the read was between its poll and its retry.
			if e := timeout.Errno(); e != syscall.ETIME && e != syscall.EALREADY && e != syscall.ENOENT {
				t.Fatalf("the read was cancelled, the timeout completed with %+v", timeout)
			}
			if n, err := rd.Read(buf); n != 1 || err != nil {
				t.Fatalf("the byte of a cancelled read is lost: %d, %v", n, err)
			}
		default:
			t.Fatalf("read %+v, timeout %+v", read, timeout)
		}
		outcomes[m[1].Errno()]++
		if want := byte('a' + i%26); buf[0] != want {
			t.Fatalf("byte %q, want %q", buf[0], want)
		}
	}
	t.Logf("reads by errno: %v", outcomes)
}
