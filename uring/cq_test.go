// SPDX-License-Identifier: MIT

package uring_test

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// smallCQ are rings whose CQ has two slots, with the first kernel that supports them.
var smallCQ = []struct {
	name, since string
	o           uring.Options
}{
	{"default", "5.6", uring.Options{}},
	{"defer", "6.1", uring.Options{DeferTaskrun: true}},
	{"coop", "5.19", uring.Options{CoopTaskrun: true, TaskrunFlag: true}},
	{"single", "6.0", uring.Options{SingleIssuer: true}},
	{"sqpoll", "5.13", uring.Options{SQPoll: true}},
	{"cqe32", "5.19", uring.Options{CQE32: true}},
	{"mixed", "6.18", uring.Options{CQEMixed: true}},
	{"own memory", "6.5", uring.Options{NoMmap: true}},
}

// TestOverflow posts far more completions than the CQ has slots before it reaps the first.
// All must arrive, in order, for every batch size.
// Promise: uring/completion-lost-seen
func TestOverflow(t *testing.T) {
	for _, f := range smallCQ {
		for _, batch := range []int{1, 2, 3, 7, 64} {
			t.Run(fmt.Sprintf("%s/%d", f.name, batch), func(t *testing.T) {
				ringtest.NeedKernel(t, "ring flavour "+f.name, f.since)
				f.o.Entries, f.o.CQEntries = 2, 2
				testOverflow(t, ctlRing(t, f.o), batch)
			})
		}
	}
}

func testOverflow(t *testing.T, r *uring.Ring, batch int) {
	const nops = 50
	if r.CQEntries() != 2 {
		t.Fatalf("the CQ has %d slots, want 2", r.CQEntries())
	}
	for i := range uint64(nops) {
		ctlNext(t, r).Nop().SetUserData(i)
		ctlSubmit(t, r, 1)
		ctlUntil(t, "the kernel takes the entry", func() bool { return r.Pending() == 0 })
	}
	if r.SQFlags()&uring.SQCQOverflow == 0 {
		t.Fatal("no overflow")
	}
	if r.CQOverflow() != 0 || r.CQFlushes() != 0 {
		t.Errorf("before the first Reap: %d overflows and %d flushes", r.CQOverflow(), r.CQFlushes())
	}
	dst := make([]uring.CQE, batch)
	for next := uint64(0); next < nops; {
		n := r.Reap(dst)
		if n == 0 {
			t.Fatalf("nothing after %d completions", next)
		}
		if rest := nops - int(next); n != min(batch, rest) {
			t.Errorf("got %d completions; %d wait, and there is room for %d", n, rest, batch)
		}
		for _, c := range dst[:n] {
			if c.UserData != next || c.Res != 0 {
				t.Fatalf("completion %+v, want number %d", c, next)
			}
			next++
		}
	}
	if n := r.Reap(dst); n != 0 || r.SQFlags()&uring.SQCQOverflow != 0 {
		t.Errorf("%d unexpected completions, SQ flags %#x", n, r.SQFlags())
	}
	if n := r.CQOverflow(); n < nops/2-2 || uint64(n) != r.CQFlushes() || r.CQDropped() != 0 {
		t.Errorf("%d overflows, %d flushes, %d dropped", n, r.CQFlushes(), r.CQDropped())
	}
}

// TestOverflowBig checks that completions that overflow keep their second halves.
func TestOverflowBig(t *testing.T) {
	ringtest.NeedKernel(t, "NOP with a 32-byte completion", "6.18")
	for name, o := range map[string]uring.Options{"cqe32": {CQE32: true}, "mixed": {CQEMixed: true}} {
		t.Run(name, func(t *testing.T) {
			o.Entries, o.CQEntries = 2, 4
			r := ctlRing(t, o)
			const nops = 30
			big := func(i uint64) bool { return o.CQE32 || i%3 != 0 }
			for i := range uint64(nops) {
				ctlNext(t, r).NopWith(uring.NopOptions{Big: big(i), BigValues: [2]uint64{i, i << 50}}).SetUserData(i)
				ctlSubmit(t, r, 1)
			}
			var dst [3]uring.BigCQE
			seen := map[uint64]bool{}
			for len(seen) < nops {
				n := r.ReapBig(dst[:])
				if n == 0 {
					t.Fatalf("nothing after %d completions", len(seen))
				}
				for _, c := range dst[:n] {
					want := [2]uint64{}
					if big(c.UserData) {
						want = [2]uint64{c.UserData, c.UserData << 50}
					}
					// In a mixed CQ with one free slot the kernel posts a small completion
					// before a big one that does not fit.
					if ordered := o.CQE32; ordered && c.UserData != uint64(len(seen)) || seen[c.UserData] || c.Big != want {
						t.Fatalf("completion %+v after %d, want values %#x", c, len(seen), want)
					}
					seen[c.UserData] = true
				}
			}
			if r.CQOverflow() == 0 {
				t.Error("nothing overflowed")
			}
		})
	}
}

// TestOverflowMultishot sends more messages to a multishot receive than the CQ has slots.
// The kernel may end the receive; after it is armed again it delivers the rest.
// Promise: uring/completion-lost-seen
func TestOverflowMultishot(t *testing.T) {
	for _, f := range smallCQ {
		t.Run(f.name, func(t *testing.T) {
			ringtest.NeedKernel(t, "ring flavour "+f.name, f.since)
			ringtest.NeedKernel(t, "multishot receive", "6.0")
			f.o.Entries, f.o.CQEntries = 2, 2
			r := ctlRing(t, f.o)
			b, err := r.NewBufRing(uring.BufRingOptions{Entries: 64, BufferSize: 64})
			ctlOK(t, "buffer ring", err)
			rd, wr := ctlPackets(t)
			arm := func() {
				ctlNext(t, r).RecvMultishot(uring.Fd(rd), 0, b.Group()).SetUserData(7)
				ctlSubmit(t, r, 1)
			}
			arm()
			const messages = 40
			for i := range messages {
				ctlWrite(t, wr, fmt.Appendf(nil, "message %d", i))
			}
			for i := 0; i < messages; {
				c := ringtest.Await(t, r, 1)[0]
				if data, done := b.Take(c); done {
					if want := fmt.Sprintf("message %d", i); string(data) != want {
						t.Fatalf("%q, want %q", data, want)
					}
					b.Recycle(c.BufferID())
					b.Publish()
					i++
				} else if c.Errno() != syscall.ENOBUFS {
					t.Fatalf("completion %+v", c)
				}
				if !c.Has(uring.CQEMore) && i < messages {
					arm()
				}
			}
			if r.CQDropped() != 0 {
				t.Errorf("%d dropped", r.CQDropped())
			}
		})
	}
}

// TestReapElsewhere fetches overflowed completions on a thread other than the submitter's.
// On a ring with a single issuer only the issuer gets them.
func TestReapElsewhere(t *testing.T) {
	overflow := func(r *uring.Ring) {
		for i := range uint64(10) {
			ctlNext(t, r).Nop().SetUserData(i)
			ctlSubmit(t, r, 1)
		}
	}
	reap := func(r *uring.Ring) int { return r.Reap(make([]uring.CQE, 20)) }

	plain := ctlRing(t, uring.Options{Entries: 2, CQEntries: 2})
	overflow(plain)
	ctlElsewhere(func() {
		if n := reap(plain); n != 10 {
			t.Errorf("%d completions on another thread, want 10", n)
		}
	})
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	deferred := ctlRing(t, uring.Options{Entries: 2, CQEntries: 2, DeferTaskrun: true})
	overflow(deferred)
	n := 0
	ctlElsewhere(func() { n = reap(deferred) })
	if n != 2 {
		t.Errorf("%d completions on another thread, want the 2 that fitted into the CQ", n)
	}
	if n += reap(deferred); n != 10 {
		t.Errorf("%d completions in all, want 10", n)
	}
}

// TestOverflowWait checks that a wait, and not only Reap, fetches overflowed completions.
func TestOverflowWait(t *testing.T) {
	r := ctlRing(t, uring.Options{Entries: 2, CQEntries: 2})
	for range 4 {
		ctlNext(t, r).Nop()
		ctlSubmit(t, r, 1)
	}
	dst := make([]uring.CQE, 2)
	if n := r.Reap(dst); n != 2 {
		t.Fatalf("%d completions", n)
	}
	_, err := r.SubmitAndWait(2)
	ctlOK(t, "wait", err)
	if r.Ready() != 2 || r.CQOverflow() != 1 || r.CQFlushes() != 0 {
		t.Errorf("%d ready, %d overflows, %d flushes", r.Ready(), r.CQOverflow(), r.CQFlushes())
	}
}

func TestReapNothing(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		if n := r.Reap(nil) + r.Reap(make([]uring.CQE, 3)) + r.ReapBig(nil) + r.ReapBig(make([]uring.BigCQE, 3)); n != 0 {
			t.Errorf("Reap returned %d completions of an idle ring", n)
		}
		ctlNext(t, r).Nop().SetUserData(3)
		_, err := r.SubmitAndWait(1)
		ctlOK(t, "submit", err)
		if n := r.Reap(nil); n != 0 || r.Ready() != 1 {
			t.Errorf("Reap into an empty slice: %d, %d ready", n, r.Ready())
		}
		if c := ringtest.Await(t, r, 1)[0]; c.UserData != 3 {
			t.Errorf("completion %+v", c)
		}
	})
}

func TestCQE(t *testing.T) {
	failed := uring.CQE{Res: -int32(syscall.EPERM)}
	if !errors.Is(failed.Err(), syscall.EPERM) || !errors.Is(failed.Err(), fs.ErrPermission) || failed.Errno() != syscall.EPERM {
		t.Errorf("error %v, errno %v", failed.Err(), failed.Errno())
	}
	for _, res := range []int32{0, 1, 1<<31 - 1} {
		if c := (uring.CQE{Res: res}); c.Err() != nil || c.Errno() != 0 {
			t.Errorf("result %d: error %v, errno %v", res, c.Err(), c.Errno())
		}
	}
	c := uring.CQE{Flags: 0xabcd<<16 | uring.CQEBuffer | uring.CQEMore}
	if c.BufferID() != 0xabcd || !c.Has(uring.CQEBuffer) || !c.Has(uring.CQEBuffer|uring.CQEMore) || c.Has(uring.CQEBuffer|uring.CQENotif) {
		t.Errorf("buffer %#x of flags %#x", c.BufferID(), c.Flags)
	}
	runtime.KeepAlive(c)
}
