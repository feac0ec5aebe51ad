// SPDX-License-Identifier: MIT

package uring_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func TestSQFull(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		size := r.SQEntries()
		want := func(space, pending int) {
			t.Helper()
			if r.SQSpace() != space || r.Pending() != pending {
				t.Fatalf("space %d and %d pending, want %d and %d", r.SQSpace(), r.Pending(), space, pending)
			}
		}
		// The SQPOLL thread publishes which entries it consumed after it posts their
		// completions.
		settle := func() {
			for r.SetupFlags()&uring.SetupSQPoll != 0 && r.SQSpace() != size {
				runtime.Gosched()
			}
		}
		for round := range 5 {
			settle()
			want(size, 0)
			for i := range size {
				ctlNext(t, r).Nop().SetUserData(uint64(i))
				want(size-1-i, i+1)
			}
			for range 2 {
				if r.SQE() != nil {
					t.Fatalf("round %d: a full queue hands out an entry", round)
				}
			}
			for i, c := range ringtest.Await(t, r, size) {
				if c.UserData != uint64(i) {
					t.Fatalf("round %d: completion %+v at position %d", round, c, i)
				}
			}
		}
		settle()
		want(size, 0)
	})
}

func TestSubmitNothing(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		for _, submit := range []func() (int, error){r.Submit, r.SubmitNoWait} {
			if n, err := submit(); n != 0 || err != nil {
				t.Errorf("submit without entries: %d, %v", n, err)
			}
		}
		if n, err := r.SubmitAndWait(0); n != 0 || err != nil {
			t.Errorf("wait for nothing: %d, %v", n, err)
		}
	})
}

// TestSubmitCounts adds up the results of all functions that submit: each entry counts
// once, also with SQPOLL, where the kernel consumes entries at its own pace.
func TestSubmitCounts(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		rnd := rand.New(rand.NewPCG(3, 4))
		ways := []func() (int, error){
			r.Submit, r.SubmitNoWait,
			func() (int, error) { return r.SubmitAndWait(0) },
			func() (int, error) { return r.SubmitAndWaitTimeout(1, time.Second) },
		}
		made, counted, reaped := 0, 0, 0
		dst := make([]uring.CQE, 16)
		for made < 3000 {
			for range 1 + rnd.IntN(3) {
				if e := r.SQE(); e != nil {
					e.Nop()
					made++
				}
			}
			n, err := ways[rnd.IntN(len(ways))]()
			ctlOK(t, "submit", err)
			counted += n
			reaped += r.Reap(dst)
			if r.SQSpace() == 0 {
				ctlOK(t, "wait for room", r.WaitSQ())
			}
		}
		n, err := r.Submit()
		ctlOK(t, "submit", err)
		if counted += n; counted != made {
			t.Errorf("%d entries were submitted, the results add up to %d", made, counted)
		}
		ringtest.Await(t, r, made-reaped)
	})
}

// TestPublish submits in two steps: the first publishes the entries, the second enters the
// kernel without touching the submission queue.
func TestPublish(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		if r.SetupFlags()&uring.SetupSQPoll != 0 {
			return // with SQPOLL, Submit does just that
		}
		if n, err := r.Publish(); n != 0 || err != nil {
			t.Errorf("publish without entries: %d, %v", n, err)
		}
		for _, o := range []uring.WaitOptions{{Brief: true}, {Count: 2}, {Count: 1, Timeout: time.Hour}} {
			ctlNext(t, r).Nop().SetUserData(1)
			ctlNext(t, r).Nop().SetUserData(2)
			n, err := r.Publish()
			if n != 2 || err != nil || r.Pending() != 2 || r.Ready() != 0 {
				t.Fatalf("publish: %d, %v, %d pending, %d ready", n, err, r.Pending(), r.Ready())
			}
			o.NoSubmit, o.Published = true, n
			if n, err := r.Wait(o); n != 2 || err != nil || r.Pending() != 0 {
				t.Fatalf("wait %+v: %d, %v, %d pending", o, n, err, r.Pending())
			}
			for i, c := range ringtest.Await(t, r, 2) {
				if c.UserData != uint64(i+1) {
					t.Fatalf("completion %+v", c)
				}
			}
		}
		// Without Published a wait submits nothing.
		ctlNext(t, r).Nop()
		if n, err := r.Wait(uring.WaitOptions{NoSubmit: true}); n != 0 || err != nil || r.Pending() != 1 {
			t.Errorf("wait: %d, %v, %d pending", n, err, r.Pending())
		}
		ringtest.Await(t, r, 1)
	})
}

// TestWaitSQ waits repeatedly for free entries in a queue that the SQPOLL thread must
// empty.
func TestWaitSQ(t *testing.T) {
	ringtest.NeedKernel(t, "SQPOLL without privileges", "5.13")
	r := ctlRing(t, uring.Options{Entries: 2, CQEntries: 4096, SQPoll: true, SQPollIdle: time.Millisecond})
	const nops = 3000
	for i := range uint64(nops) {
		e := r.SQE()
		for e == nil {
			ctlOK(t, "wait for room", r.WaitSQ())
			e = r.SQE()
		}
		e.Nop().SetUserData(i)
	}
	for i, c := range ringtest.Await(t, r, nops) {
		if c.UserData != uint64(i) {
			t.Fatalf("completion %+v at position %d", c, i)
		}
	}

	plain := ctlRing(t, uring.Options{Entries: 2})
	ctlNext(t, plain).Nop()
	ctlOK(t, "wait on a ring without SQPOLL", plain.WaitSQ())
	if plain.Pending() != 1 || plain.Ready() != 0 {
		t.Error("waiting for room submitted an entry of a ring without SQPOLL")
	}
}

// TestSubmitFromManyThreads uses one ring from goroutines that move between threads, one
// goroutine at a time.
func TestSubmitFromManyThreads(t *testing.T) {
	r := ringtest.Open(t, &uring.Options{Entries: 8, CQEntries: 8})
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			for i := range uint64(200) {
				mu.Lock()
				ctlNext(t, r).Nop().SetUserData(g<<32 | i)
				if c := ringtest.Await(t, r, 1)[0]; c.UserData != g<<32|i {
					t.Errorf("completion %+v, want %d of goroutine %d", c, i, g)
				}
				mu.Unlock()
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
}

// TestSubmitOverlapsReap submits on one goroutine and reaps on another.
func TestSubmitOverlapsReap(t *testing.T) {
	r := ringtest.Open(t, &uring.Options{Entries: 8, CQEntries: 8})
	const nops = 5000
	var wg sync.WaitGroup
	wg.Go(func() {
		dst := make([]uring.CQE, 5)
		for next := uint64(0); next < nops; {
			n := r.Reap(dst)
			for _, c := range dst[:n] {
				if c.UserData != next {
					t.Errorf("completion %+v, want number %d", c, next)
				}
				next++
			}
			if n == 0 {
				if _, err := r.Wait(uring.WaitOptions{Count: 1, NoSubmit: true, Timeout: time.Second}); err != nil {
					t.Errorf("wait: %v", err)
				}
			}
		}
	})
	for i := range uint64(nops) {
		ctlNext(t, r).Nop().SetUserData(i)
		if i%3 == 0 || r.SQSpace() == 0 {
			_, err := r.Submit()
			ctlOK(t, "submit", err)
		}
	}
	_, err := r.Submit()
	ctlOK(t, "submit", err)
	wg.Wait()
}

func TestSubmitErrors(t *testing.T) {
	ringtest.NeedKernel(t, "R_DISABLED", "5.10")
	r := ctlRing(t, uring.Options{Disabled: true})
	ctlNext(t, r).Nop()
	for name, submit := range map[string]func() (int, error){
		"Submit":        r.Submit,
		"SubmitNoWait":  r.SubmitNoWait,
		"SubmitAndWait": func() (int, error) { return r.SubmitAndWait(1) },
	} {
		n, err := submit()
		ctlErrno(t, name, err, ctlEBADFD)
		if n != 0 || r.Pending() != 1 {
			t.Errorf("%s: took %d, %d pending", name, n, r.Pending())
		}
		if err == error(syscall.Errno(ctlEBADFD)) {
			t.Errorf("%s: Submit returned a bare errno, want a wrapped one", name)
		}
	}
}

// TestUnfilledEntriesAreNotTaken submits fewer entries than the queue has, at every
// position of the queue and with every function that submits: the kernel's tail may be
// ahead of the filled entries.
func TestUnfilledEntriesAreNotTaken(t *testing.T) {
	r := ringtest.Open(t, &uring.Options{Entries: 8})
	buf := make([]uring.CQE, 64)
	next := uint64(0)
	for round := range 200 {
		n := 1 + round%7
		for i := range n {
			r.SQE().Nop().SetUserData(next + uint64(i))
		}
		var taken int
		var err error
		switch round % 3 {
		case 0:
			taken, err = r.SubmitNoWait()
		case 1:
			taken, err = r.Submit()
		case 2:
			if taken, err = r.Publish(); err == nil {
				taken, err = r.Wait(uring.WaitOptions{NoSubmit: true, Published: taken + 8}) // a count from an earlier Publish
			}
		}
		if err != nil || taken != n || r.Pending() != 0 || r.SQSpace() != 8 {
			t.Fatalf("round %d: %d of %d taken, %v, %d pending, room for %d", round, taken, n, err, r.Pending(), r.SQSpace())
		}
		if _, err := r.SubmitAndWait(0); err != nil {
			t.Fatal(err)
		}
		if got := r.Reap(buf); got != n {
			t.Fatalf("round %d: got %d completions, want %d", round, got, n)
		}
		for i, c := range buf[:n] {
			if c.UserData != next+uint64(i) {
				t.Fatalf("round %d: completion %d has user data %d, want %d", round, i, c.UserData, next+uint64(i))
			}
		}
		next += uint64(n)
	}
}

// FuzzSubmit runs any sequence of submissions on a real ring.
// Promise: uring/entry-executed-count
func FuzzSubmit(f *testing.F) {
	f.Add([]byte{0x70, 2, 0x00, 4, 0x00, 2, 0x15})                            // a stale count after one lap
	f.Add([]byte{0x70, 2, 0x20, 4, 0x10, 2, 0x15, 0x16, 0x00, 3})             // as a goroutine that waits would use it
	f.Add([]byte{0x70, 4, 2, 0x15, 0x70, 0x25, 4, 0x15, 0x26, 0x00, 0x15, 7}) // a full queue
	r := ringtest.Open(f, &uring.Options{Entries: 8})
	f.Fuzz(func(t *testing.T, steps []byte) { ringtest.SubmitWays(t, r, steps) })
}

// TestSubmitWays runs random sequences on each kind of ring that consumes entries during
// the call.
func TestSubmitWays(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		if r.SetupFlags()&uring.SetupSQPoll != 0 || r.CQEntries() < 8 {
			return
		}
		rnd := rand.New(rand.NewPCG(5, 6))
		steps := make([]byte, 60)
		for range 200 {
			for i := range steps {
				steps[i] = byte(rnd.Uint32())
			}
			ringtest.SubmitWays(t, r, steps)
		}
	})
}

// TestStalePublished submits between Publish and the wait that uses its count: no write may
// be carried out twice.
// Promise: uring/entry-executed-count
func TestStalePublished(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		size := r.SQEntries()
		if r.SetupFlags()&uring.SetupSQPoll != 0 || size < 8 {
			return
		}
		fd, one := ctlEventFD(t), make([]byte, 8) // an eventfd adds up the values written to it
		binary.NativeEndian.PutUint64(one, 1)
		write := func() { ctlNext(t, r).Write(uring.Fd(fd), one, 0) }
		for range size { // one lap, so that old entries are everywhere
			write()
		}
		ringtest.Await(t, r, size)
		if n := ctlEventCount(t, fd); n != uint64(size) {
			t.Fatalf("%d writes, want %d", n, size)
		}
		for range 3 {
			write()
		}
		n, err := r.Publish()
		ctlOK(t, "publish", err)
		for range 2 {
			write()
		}
		_, err = r.Submit()
		ctlOK(t, "submit", err)
		for _, stale := range []int{n, size, 1 << 20} {
			if took, err := r.Wait(uring.WaitOptions{NoSubmit: true, Published: stale}); took != 0 || err != nil {
				t.Errorf("a wait with a stale count of %d took %d entries, %v", stale, took, err)
			}
		}
		ringtest.Await(t, r, 5)
		if n := ctlEventCount(t, fd); n != 5 || r.Pending() != 0 || r.SQSpace() != size {
			t.Errorf("%d writes, want 5; %d pending, room for %d", n, r.Pending(), r.SQSpace())
		}
	})
}

// TestIdleRingShowsNoEntries reads from fdinfo how many entries of a ring the kernel sees,
// with nothing to submit and with one entry.
// Promise: uring/entry-executed-count
func TestIdleRingShowsNoEntries(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		for round := range 3 {
			if n := ctlShown(t, r); n != 0 {
				t.Errorf("round %d: the kernel sees %d entries of an idle ring", round, n)
			}
			for range 1 + round%r.SQEntries() {
				ctlNext(t, r).Nop()
			}
			ringtest.Await(t, r, 1+round%r.SQEntries())
		}
		if r.SetupFlags()&uring.SetupSQPoll != 0 {
			return // the SQPOLL thread consumes entries at any time
		}
		ctlNext(t, r).Nop()
		if _, err := r.Publish(); err != nil {
			t.Fatal(err)
		}
		if n := ctlShown(t, r); n != 1 {
			t.Errorf("the kernel sees %d entries, want 1", n)
		}
		ringtest.Await(t, r, 1)
	})
}

// TestBuildersOnNilSayWhy calls every builder on the nil entry that a full queue returns.
func TestBuildersOnNilSayWhy(t *testing.T) {
	for op := range uring.Op(uring.OpCount) {
		for _, g := range opLedger[op].goldens {
			func() {
				defer func() {
					if err, _ := recover().(error); !errors.Is(err, uring.ErrSQFull) {
						t.Errorf("%v, %s: panics with %v", op, g.name, err)
					} else if !strings.Contains(err.Error(), "a chain must fit") {
						t.Errorf("%v does not name the limit of chains", err)
					}
				}()
				g.build(nil)
				t.Errorf("%v, %s: did not panic", op, g.name)
			}()
		}
	}
}
