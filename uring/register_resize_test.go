// SPDX-License-Identifier: MIT

package uring_test

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerRegister(uring.OpRegisterResizeRings, row{since: "6.13", uses: []string{"Ring.Resize"}, kernel: kernelRegisterResizeRings})
}

func kernelRegisterResizeRings(t *testing.T) {
	ringtest.NeedKernel(t, "RESIZE_RINGS", "6.13")
	t.Run("full", resizeFull)
	t.Run("refused", resizeRefused)
	t.Run("in flight", resizeInFlight)
	for name, o := range map[string]uring.Options{
		"plain": {}, "no array": {NoSQArray: true}, "sqe128": {SQE128: true}, "cqe32": {CQE32: true},
		"both": {SQE128: true, CQE32: true, NoSQArray: true}, "mixed": {CQEMixed: true},
	} {
		t.Run(name, func(t *testing.T) {
			if o.CQE32 || o.CQEMixed {
				ringtest.NeedKernel(t, "NOP with a 32-byte completion", "6.18")
			}
			o.Entries, o.CQEntries, o.DeferTaskrun = 4, 8, true
			resizeAtRandom(t, ctlRing(t, o))
		})
	}
}

// resizeFull checks that resizing keeps the content of both queues, for every new size.
func resizeFull(t *testing.T) {
	r := ctlRing(t, uring.Options{Entries: 4, CQEntries: 8, DeferTaskrun: true})
	mappings := len(ctlRingMappings(t))
	ctlNops(t, r, 1, 5) // the counters do not start at 0
	for u := uint64(1); u <= 6; u++ {
		ctlNext(t, r).Nop().SetUserData(u)
		ctlSubmit(t, r, 1)
	}
	for u := uint64(7); u <= 9; u++ {
		ctlNext(t, r).Nop().SetUserData(u)
	}
	want := func(sq, cq int) {
		t.Helper()
		if r.SQEntries() != sq || r.CQEntries() != cq || r.Ready() != 6 || r.Pending() != 3 {
			t.Fatalf("queues of %d and %d entries with %d pending and %d ready; want %d and %d with 3 and 6",
				r.SQEntries(), r.CQEntries(), r.Pending(), r.Ready(), sq, cq)
		}
	}
	want(4, 8)
	ctlOK(t, "resize both", r.Resize(16, 33))
	want(16, 64)
	ctlOK(t, "resize one", r.Resize(0, 128))
	want(16, 128)
	ctlOK(t, "resize the other", r.Resize(64, 0))
	want(64, 128)
	ctlErrno(t, "too small an SQ", r.Resize(2, 8), syscall.EOVERFLOW)
	ctlErrno(t, "too small a CQ", r.Resize(4, 4), syscall.EOVERFLOW)
	want(64, 128)
	ctlOK(t, "shrink", r.Resize(4, 8))
	want(4, 8)
	for i, c := range ringtest.Await(t, r, 9) {
		if c.UserData != uint64(i+1) || c.Res != 0 {
			t.Fatalf("completion %+v at position %d", c, i+1)
		}
	}
	ctlNops(t, r, 1, 100)
	if n := len(ctlRingMappings(t)); n != mappings {
		t.Errorf("%d mappings, %d before", n, mappings)
	}
}

func resizeRefused(t *testing.T) {
	r := ctlRing(t, uring.Options{Entries: 4, DeferTaskrun: true})
	ctlErrno(t, "a CQ smaller than the SQ", r.Resize(8, 4), syscall.EINVAL)
	ctlErrno(t, "too many entries", r.Resize(1<<20, 1<<21), syscall.EINVAL)
	ctlElsewhere(func() { ctlErrno(t, "on another thread", r.Resize(8, 16), syscall.EEXIST) })
	ctlNops(t, r, 1, 10)
	ctlErrno(t, "without DeferTaskrun", ctlRing(t, uring.Options{}).Resize(8, 16), syscall.EINVAL)
	own := ctlRing(t, uring.Options{Entries: 4, DeferTaskrun: true, NoMmap: true})
	ctlErrno(t, "in memory of the process", own.Resize(8, 16), syscall.EINVAL)
	ctlNops(t, own, 1, 10)
	ctlOK(t, "close", r.Close())
	ctlErrno(t, "a closed ring", r.Resize(8, 16), syscall.EBADF)
}

// resizeInFlight completes an operation that was submitted before the resize, and keeps
// completions that had overflowed.
func resizeInFlight(t *testing.T) {
	r := ctlRing(t, uring.Options{Entries: 2, CQEntries: 2, DeferTaskrun: true})
	rd, wr := ctlPipe(t)
	ctlNext(t, r).PollAdd(uring.Fd(rd), 1).SetUserData(100)
	ctlSubmit(t, r, 1)
	for u := range uint64(10) {
		ctlNext(t, r).Nop().SetUserData(u)
		ctlSubmit(t, r, 1)
	}
	ctlOK(t, "resize", r.Resize(4, 8))
	for i, c := range ringtest.Await(t, r, 10) {
		if c.UserData != uint64(i) {
			t.Fatalf("completion %+v at position %d", c, i)
		}
	}
	ctlWrite(t, wr, []byte{1})
	if c := ringtest.Await(t, r, 1)[0]; c.UserData != 100 || c.Res != 1 {
		t.Fatalf("completion %+v", c)
	}
}

// resizeAtRandom submits, reaps and resizes at random and loses neither completions nor
// their second halves.
func resizeAtRandom(t *testing.T, r *uring.Ring) {
	rnd := rand.New(rand.NewPCG(5, 6))
	bigs := r.SetupFlags()&(uring.SetupCQE32|uring.SetupCQEMixed) != 0
	big := func(u uint64) bool { return bigs && (r.SetupFlags()&uring.SetupCQE32 != 0 || u%3 == 0) }
	next := func() *uring.SQE {
		if r.SetupFlags()&uring.SetupSQE128 != 0 {
			if b := r.BigSQE(); b != nil {
				return b.SQE()
			}
			return nil
		}
		return r.SQE()
	}
	made, seen, resized := uint64(0), uint64(0), 0
	dst := make([]uring.BigCQE, 5)
	for seen < 5000 {
		for range rnd.IntN(4) {
			if r.CQEntries()-r.Ready()-2*r.Pending() < 4 {
				break // overflow is left to another test
			}
			if e := next(); e != nil {
				e.NopWith(uring.NopOptions{Big: big(made), BigValues: [2]uint64{made, made << 33}}).SetUserData(made)
				made++
			}
		}
		if rnd.IntN(2) == 0 {
			ctlSubmit(t, r, r.Pending())
		}
		if sq := uint32(1) << (2 + rnd.IntN(4)); rnd.IntN(3) == 0 && r.Resize(sq, 2*sq<<rnd.IntN(2)) == nil {
			resized++
		}
		n := r.ReapBig(dst[:rnd.IntN(len(dst))])
		for _, c := range dst[:n] {
			want := [2]uint64{}
			if big(seen) {
				want = [2]uint64{seen, seen << 33}
			}
			if c.UserData != seen || c.Res != 0 || c.Big != want {
				t.Fatalf("completion %+v, want number %d with %#x, after %d changes of size", c, seen, want, resized)
			}
			seen++
		}
	}
	if resized < 100 {
		t.Errorf("only %d resizes", resized)
	}
}
