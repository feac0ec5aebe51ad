// SPDX-License-Identifier: MIT

package uring_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerRegister(uring.OpRegisterEventFD, row{since: "5.2", uses: []string{"Ring.RegisterEventFD", "Ring.SetCQFlags"}, kernel: kernelRegisterEventFD})
	ledgerRegister(uring.OpUnregisterEventFD, row{since: "5.2", uses: []string{"Ring.UnregisterEventFD"}, kernel: kernelUnregisterEventFD})
	ledgerRegister(uring.OpRegisterEventFDAsync, row{since: "5.6", uses: []string{"Ring.RegisterEventFD"}, kernel: kernelRegisterEventFDAsync})
	ledgerRegister(uring.OpRegisterPersonality, row{since: "5.6", uses: []string{"Ring.RegisterPersonality", "SQE.SetPersonality"}, kernel: kernelRegisterPersonality})
	ledgerRegister(uring.OpUnregisterPersonality, row{since: "5.6", uses: []string{"Ring.UnregisterPersonality"}, kernel: kernelUnregisterPersonality})
	ledgerRegister(uring.OpRegisterEnableRings, row{since: "5.10", uses: []string{"Ring.Enable"}, kernel: kernelSetupDisabled})
	ledgerRegister(uring.OpRegisterRingFDs, row{since: "5.18", uses: []string{"Ring.RegisterRingFD"}, kernel: kernelRegisterRingFDs})
	ledgerRegister(uring.OpUnregisterRingFDs, row{since: "5.18", uses: []string{"Ring.UnregisterRingFD"}, kernel: kernelUnregisterRingFDs})
	ledgerRegister(uring.OpRegisterSendMsgRing, row{since: "6.13", uses: []string{"SendMsgRing"}, kernel: kernelRegisterSendMsgRing})
	ledgerRegister(uring.OpRegisterZCRXIFQ, row{since: "6.15", uses: []string{"Ring.RegisterZCRX"}, kernel: kernelRegisterZCRX,
		reason: "no network card with header split; the test checks that the kernel refuses the loopback interface and that no memory stays mapped"})
}

// eventNops completes operations and waits until their events have been sent. The SQPOLL
// thread sends the events after it posts the completions, but before it releases the ring,
// for which a register call waits.
func eventNops(t *testing.T, r *uring.Ring, n uint64) {
	t.Helper()
	ctlNops(t, r, 1, n)
	_, err := r.Probe()
	ctlOK(t, "probe", err)
}

func kernelRegisterEventFD(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		fd := ctlEventFD(t)
		ctlOK(t, "register", r.RegisterEventFD(fd, false))
		ctlErrno(t, "register twice", r.RegisterEventFD(fd, false), syscall.EBUSY)
		eventNops(t, r, 2)
		if n := ctlEventCount(t, fd); n == 0 || n > 2 {
			t.Errorf("got %d events for two completions", n)
		}
		r.SetCQFlags(uring.CQEventFDDisabled)
		eventNops(t, r, 2)
		if n := ctlEventCount(t, fd); n != 0 {
			t.Errorf("%d events while they are disabled", n)
		}
		r.SetCQFlags(0)
		eventNops(t, r, 1)
		if n := ctlEventCount(t, fd); n != 1 {
			t.Errorf("%d events for a completion", n)
		}
		ctlOK(t, "unregister", r.UnregisterEventFD())
		rd, _ := ctlPipe(t)
		if r.RegisterEventFD(rd, false) == nil {
			t.Error("a pipe is accepted as an eventfd")
		}
	})
}

func kernelUnregisterEventFD(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		ctlErrno(t, "unregister nothing", r.UnregisterEventFD(), syscall.ENXIO)
		fd := ctlEventFD(t)
		for range 3 {
			ctlOK(t, "register", r.RegisterEventFD(fd, false))
			eventNops(t, r, 1)
			if n := ctlEventCount(t, fd); n != 1 {
				t.Errorf("%d events for a completion", n)
			}
			ctlOK(t, "unregister", r.UnregisterEventFD())
			eventNops(t, r, 1)
			if n := ctlEventCount(t, fd); n != 0 {
				t.Errorf("%d events afterwards", n)
			}
		}
	})
}

// kernelRegisterEventFDAsync distinguishes completions during submission from later ones.
func kernelRegisterEventFDAsync(t *testing.T) {
	r := ctlRing(t, uring.Options{})
	fd := ctlEventFD(t)
	ctlOK(t, "register", r.RegisterEventFD(fd, true))
	ctlErrno(t, "register twice", r.RegisterEventFD(fd, false), syscall.EBUSY)
	ctlNops(t, r, 1, 5)
	if n := ctlEventCount(t, fd); n != 0 {
		t.Errorf("%d events for completions at submission", n)
	}
	ctlNext(t, r).Nop().SetFlags(uring.SQEAsync)
	ctlSubmit(t, r, 1)
	var n uint64
	ctlUntil(t, "the event of a worker thread", func() bool { n += ctlEventCount(t, fd); return n > 0 })
	if ringtest.Await(t, r, 1); n != 1 {
		t.Errorf("%d events for a completion by a worker thread", n)
	}
	ctlOK(t, "unregister", r.UnregisterEventFD())
}

func kernelRegisterPersonality(t *testing.T) {
	ringtest.NeedRing(t)
	ringtest.NeedUser(t, ctlNobody)
	r := ctlRing(t, uring.Options{})
	id, err := r.RegisterPersonality()
	ctlOK(t, "register", err)
	if id == 0 {
		t.Fatal("personality 0, which means none")
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "private")
	ctlOK(t, "write", os.WriteFile(name, []byte("x"), 0o600))
	for d := dir; d != filepath.Dir(d); d = filepath.Dir(d) {
		ctlSearchable(t, d)
	}
	path, err := uring.NewPath(name)
	ctlOK(t, "path", err)
	open := func(id uint16) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) {
			e.OpenAt(uring.AtCWD, path, os.O_RDONLY, 0).SetPersonality(id)
		})
	}
	ctlAsUser(t, func() {
		if c := open(0); c.Errno() != syscall.EACCES {
			t.Errorf("as an unprivileged user: %+v, want EACCES", c)
		}
		if c := open(id); c.Res < 0 {
			t.Errorf("with root's credentials: %v", c.Err())
		} else {
			ctlClose(t, int(c.Res))
		}
	})
	runtime.KeepAlive(path)
}

func kernelUnregisterPersonality(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		as := func(id uint16) uring.CQE {
			return ringtest.Do(t, r, func(e *uring.SQE) { e.Nop().SetPersonality(id) })
		}
		a, err := r.RegisterPersonality()
		ctlOK(t, "register", err)
		b, err := r.RegisterPersonality()
		ctlOK(t, "register", err)
		if a == b || as(a).Res != 0 || as(b).Res != 0 {
			t.Fatalf("personalities %d and %d", a, b)
		}
		ctlOK(t, "unregister", r.UnregisterPersonality(a))
		if c := as(a); c.Errno() != syscall.EINVAL {
			t.Errorf("with a dropped personality: %+v, want EINVAL", c)
		}
		if c := as(b); c.Res != 0 {
			t.Errorf("with the other: %+v", c)
		}
		ctlErrno(t, "unregister twice", r.UnregisterPersonality(a), syscall.EINVAL)
	})
}

func kernelRegisterRingFDs(t *testing.T) {
	ringtest.NeedKernel(t, "RING_FDS", "5.18")
	ctlElsewhere(func() { // a new thread, with all of its 16 slots free
		var rings []*uring.Ring
		for range 16 {
			r := ringtest.Open(t, &uring.Options{Entries: 2})
			ctlOK(t, "register", r.RegisterRingFD())
			ctlOK(t, "register twice", r.RegisterRingFD())
			rings = append(rings, r)
		}
		more := ringtest.Open(t, &uring.Options{Entries: 2})
		ctlErrno(t, "one too many", more.RegisterRingFD(), syscall.EBUSY)
		ctlNops(t, more, 1, 3)
		for _, r := range rings {
			ctlNops(t, r, 1, 3)
			_, err := r.Probe()
			ctlOK(t, "probe", err)
		}
		// The index is used, not the descriptor: other threads do not have it.
		done := make(chan struct{})
		go func() {
			defer close(done)
			ctlElsewhere(func() {
				ctlNext(t, rings[3]).Nop()
				if _, err := rings[3].Submit(); err == nil {
					t.Error("another thread submitted through the index")
				}
			})
		}()
		<-done
		for _, r := range rings {
			ctlOK(t, "close", r.Close())
		}
		ctlOK(t, "register", more.RegisterRingFD())
		ctlOK(t, "close", more.Close())
	})
}

func kernelUnregisterRingFDs(t *testing.T) {
	ringtest.NeedKernel(t, "RING_FDS", "5.18")
	r := ctlRing(t, uring.Options{Entries: 2})
	ctlOK(t, "unregister nothing", r.UnregisterRingFD())
	for range 40 { // more than there are slots
		ctlOK(t, "register", r.RegisterRingFD())
		ctlNops(t, r, 1, 2)
		ctlOK(t, "unregister", r.UnregisterRingFD())
	}
	ctlElsewhere(func() { ctlNops(t, r, 1, 2) }) // by the descriptor, which works on every thread
	ctlOK(t, "register", r.RegisterRingFD())
	ctlElsewhere(func() {
		if r.UnregisterRingFD() == nil {
			t.Error("another thread unregistered the index")
		}
	})
	ctlNops(t, r, 1, 2)
}

func kernelRegisterSendMsgRing(t *testing.T) {
	ringtest.NeedKernel(t, "SEND_MSG_RING", "6.13")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		for i := range int32(5) {
			ctlOK(t, "send", uring.SendMsgRing(r, 7<<40+uint64(i), -i))
		}
		for i, c := range ringtest.Await(t, r, 5) {
			if c.UserData != 7<<40+uint64(i) || c.Res != -int32(i) {
				t.Errorf("completion %+v, want message %d", c, i)
			}
		}
		ctlElsewhere(func() { ctlOK(t, "send", uring.SendMsgRing(r, 8, 8)) })
		if c := ringtest.Await(t, r, 1)[0]; c.UserData != 8 || c.Res != 8 {
			t.Errorf("completion %+v", c)
		}
	})
	disabled := ctlRing(t, uring.Options{Disabled: true})
	ctlErrno(t, "send to a disabled ring", uring.SendMsgRing(disabled, 1, 1), ctlEBADFD)
	ctlOK(t, "close", disabled.Close())
	ctlErrno(t, "send to a closed ring", uring.SendMsgRing(disabled, 1, 1), syscall.EBADF)
}

func kernelRegisterZCRX(t *testing.T) {
	ringtest.NeedKernel(t, "ZCRX_IFQ", "6.15")
	r := ctlRing(t, uring.Options{DeferTaskrun: true, CQE32: true})
	before := ctlMemory(t)
	for range 20 {
		if z, err := r.RegisterZCRX(ctlLoopback(t), 0, 64, 1<<20); err == nil {
			t.Fatalf("the loopback interface has a hardware queue: %+v", z)
		}
		for _, bad := range [][2]int{{0, 1 << 20}, {64, 0}} {
			if _, err := r.RegisterZCRX(ctlLoopback(t), 0, bad[0], bad[1]); err == nil {
				t.Fatalf("%d entries and an area of %d bytes are accepted", bad[0], bad[1])
			}
		}
	}
	// The areas took 20 MiB; the growth of the runtime is far smaller.
	if grown := ctlMemory(t) - before; grown > 8<<20 {
		t.Errorf("%d bytes are left mapped", grown)
	}
	ctlNops(t, r, 1, 3)
}
