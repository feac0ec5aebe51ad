// SPDX-License-Identifier: MIT

package uring_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func kernelSetupCQSize(t *testing.T) {
	ringtest.NeedKernel(t, "CQSIZE", "5.5")
	r := ctlRing(t, uring.Options{Entries: 4, CQEntries: 60})
	if r.SQEntries() != 4 || r.CQEntries() != 64 {
		t.Fatalf("queues of %d and %d entries, want 4 and 64", r.SQEntries(), r.CQEntries())
	}
	for range 16 {
		for range 4 {
			ctlNext(t, r).Nop()
		}
		if n, err := r.Submit(); n != 4 || err != nil {
			t.Fatalf("submit: %d, %v", n, err)
		}
	}
	if r.Ready() != 64 || r.SQFlags()&uring.SQCQOverflow != 0 {
		t.Errorf("%d completions, SQ flags %#x, want 64 and no overflow", r.Ready(), r.SQFlags())
	}
	if d := ctlRing(t, uring.Options{Entries: 4}); d.CQEntries() != 8 {
		t.Errorf("a CQ of %d entries by default, want 8", d.CQEntries())
	}
}

func kernelSetupClamp(t *testing.T) {
	ringtest.NeedKernel(t, "CLAMP", "5.6")
	for _, o := range []uring.Options{{Entries: 1 << 20}, {Entries: 8, CQEntries: 1 << 20}} {
		_, err := uring.Open(o)
		ctlErrno(t, fmt.Sprintf("%d and %d entries", o.Entries, o.CQEntries), err, syscall.EINVAL)
		o.Clamp = true
		r := ctlRing(t, o)
		if n := r.SQEntries(); o.Entries > 8 && n != 1<<15 {
			t.Errorf("%d SQ entries clamped to %d", o.Entries, n)
		}
		if n := r.CQEntries(); n != 1<<16 {
			t.Errorf("%d CQ entries clamped to %d", o.CQEntries, n)
		}
		ctlNops(t, r, 1, 100)
		ctlOK(t, "close", r.Close())
	}
}

func kernelSetupSQE128(t *testing.T) {
	ringtest.NeedKernel(t, "SQE128", "5.19")
	r := ctlRing(t, uring.Options{Entries: 4, SQE128: true})
	for at := uint64(1); at <= 20; at += 4 {
		for i := range uint64(4) {
			b := r.BigSQE()
			if b == nil {
				t.Fatal("no entry")
			}
			b.SQE().Nop().SetUserData(at + i)
			// With a stride of 64 bytes the kernel would read an invalid entry here.
			for j := range b.Cmd() {
				b.Cmd()[j] = 0xff
			}
			if len(b.Cmd()) != 80 {
				t.Fatalf("got %d bytes of command data", len(b.Cmd()))
			}
			b.SQE().Nop().SetUserData(at + i)
		}
		if r.BigSQE() != nil || r.SQE() != nil {
			t.Fatal("a full queue hands out an entry")
		}
		for i, c := range ringtest.Await(t, r, 4) {
			if c.UserData != at+uint64(i) || c.Res != 0 {
				t.Fatalf("completion %+v, want user data %d", c, at+uint64(i))
			}
		}
	}
	b := r.BigSQE()
	b.SQE().Nop()
	if slices.ContainsFunc(b.Cmd()[16:], func(x byte) bool { return x != 0 }) {
		t.Error("an entry keeps command data of an earlier one")
	}
	ringtest.Await(t, r, 1)
	if ctlRing(t, uring.Options{}).BigSQE() != nil {
		t.Error("a ring with 64-byte entries has a BigSQE")
	}
}

func kernelSetupCQE32(t *testing.T) {
	ringtest.NeedKernel(t, "CQE32", "5.19")
	r := ctlRing(t, uring.Options{Entries: 4, CQEntries: 4, CQE32: true})
	ctlNops(t, r, 1, 50)
	t.Run("values", func(t *testing.T) {
		ringtest.NeedKernel(t, "NOP with a 32-byte completion", "6.18")
		for at := uint64(1); at < 30; at += 3 {
			for i := at; i < at+3; i++ {
				ctlNext(t, r).NopWith(uring.NopOptions{Big: true, BigValues: [2]uint64{i << 40, ^i}}).SetUserData(i)
			}
			_, err := r.SubmitAndWait(3)
			ctlOK(t, "submit", err)
			var dst [4]uring.BigCQE
			if n := r.ReapBig(dst[:]); n != 3 {
				t.Fatalf("%d completions, want 3", n)
			}
			for i, c := range dst[:3] {
				u := at + uint64(i)
				if c.UserData != u || c.Res != 0 || c.Big != [2]uint64{u << 40, ^u} {
					t.Fatalf("completion %+v, want number %d", c, u)
				}
			}
		}
	})
	small := ctlRing(t, uring.Options{})
	ctlNext(t, small).Nop().SetUserData(5)
	ctlSubmit(t, small, 1)
	var dst [2]uring.BigCQE
	if n := small.ReapBig(dst[:]); n != 1 || dst[0].UserData != 5 || dst[0].Big != [2]uint64{} {
		t.Errorf("ReapBig on a ring with 16-byte completions: %d, %+v", n, dst[0])
	}
}

func kernelSetupCQEMixed(t *testing.T) {
	ringtest.NeedKernel(t, "CQE_MIXED", "6.18")
	r := ctlRing(t, uring.Options{Entries: 4, CQEntries: 8, CQEMixed: true})
	rnd := rand.New(rand.NewPCG(1, 2))
	fillers := 0
	for at, round := uint64(1), 0; round < 500; round++ {
		n := 1 + rnd.IntN(3)
		places, big := 0, make([]bool, n)
		for i := range n {
			e := ctlNext(t, r)
			if big[i] = rnd.IntN(2) == 0; big[i] {
				e.NopWith(uring.NopOptions{Big: true, BigValues: [2]uint64{at + uint64(i), 1 << 63}})
				places++
			} else {
				e.Nop()
			}
			places++
			e.SetUserData(at + uint64(i))
		}
		ctlSubmit(t, r, n)
		fillers += r.Ready() - places
		for i, c := range ctlReapMixed(t, r, n, round%2 == 0) {
			u := at + uint64(i)
			want := uring.BigCQE{CQE: uring.CQE{UserData: u}}
			if big[i] {
				want.Flags = uring.CQE32
				if round%2 == 0 {
					want.Big = [2]uint64{u, 1 << 63}
				}
			}
			if c != want {
				t.Fatalf("round %d: completion %+v, want %+v", round, c, want)
			}
		}
		at += uint64(n)
	}
	if fillers == 0 {
		t.Error("no completion reached the end of the queue")
	}
}

// ctlReapMixed reaps n completions one or three at a time, with or without their second
// halves, and checks that there are no more.
func ctlReapMixed(t *testing.T, r *uring.Ring, n int, big bool) []uring.BigCQE {
	t.Helper()
	var got []uring.BigCQE
	for {
		var small [3]uring.CQE
		var dst [3]uring.BigCQE
		k := 0
		if big {
			k = r.ReapBig(dst[:1])
		} else {
			k = r.Reap(small[:])
			for i, c := range small[:k] {
				dst[i].CQE = c
			}
		}
		if got = append(got, dst[:k]...); k == 0 {
			break
		}
	}
	if len(got) != n || r.Ready() != 0 {
		t.Fatalf("got %d completions and %d slots are left, want %d and 0", len(got), r.Ready(), n)
	}
	return got
}
