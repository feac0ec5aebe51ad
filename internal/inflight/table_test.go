// SPDX-License-Identifier: MIT

package inflight

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// Promise: reactor/cancellation-completion-exit
func TestGenerationMakesStaleIDsFindNothing(t *testing.T) {
	table := New[int](1, nil)
	s, ok := table.Acquire()
	if !ok || table.Lookup(s.ID()) != nil {
		t.Fatal("a slot that is being filled is found by its ID")
	}
	s.Arm()
	if table.Lookup(s.ID()) != s {
		t.Fatal("a held slot is not found by its ID")
	}
	stale := s.ID()
	if stale == 0 || table.Lookup(0) != nil {
		t.Fatal("the zero ID must name nothing")
	}
	s.Complete()
	if table.Lookup(stale) != nil {
		t.Fatal("a use that has completed is found")
	}
	table.Release(s)
	if table.Lookup(stale) != nil {
		t.Fatal("a released slot is found")
	}
	again, _ := table.Acquire()
	if again != s || again.ID() == stale || table.Lookup(stale) != nil {
		t.Fatalf("reuse: the ID %x of the last use finds the slot %x", stale, again.ID())
	}
}

func TestCapacity(t *testing.T) {
	inits := 0
	table := New[int](100, func(*int) { inits++ })
	var held []*Slot[int]
	for {
		s, ok := table.Acquire()
		if !ok {
			break
		}
		held = append(held, s)
	}
	if len(held) != 100 || table.Held() != 100 || inits != 100 {
		t.Fatalf("%d slots, %d held, %d prepared; want 100", len(held), table.Held(), inits)
	}
	seen := map[ID]bool{}
	n := 0
	for _, s := range held[:99] {
		s.Arm()
	}
	table.Each(func(s *Slot[int]) { n++; seen[s.ID()] = true })
	if n != 99 || len(seen) != 99 {
		t.Fatalf("Each visited %d slots with %d IDs", n, len(seen))
	}
	table.Release(held[7])
	if s, ok := table.Acquire(); !ok || s != held[7] {
		t.Fatal("Acquire does not reuse a released slot")
	}
}

func TestStates(t *testing.T) {
	table := New[int](1, nil)
	s, _ := table.Acquire()
	s.Arm()
	s.Arm() // again
	if !s.Abandon() || s.Abandon() {
		t.Fatal("abandoning a held slot: want success exactly once")
	}
	if s.Complete() {
		t.Fatal("completing an abandoned slot reported a waiter")
	}
	table.Release(s)
	s, _ = table.Acquire()
	s.Arm()
	if !s.Complete() || s.Abandon() {
		t.Fatal("a done slot cannot be abandoned")
	}
	mustPanic(t, "completed twice", func() { s.Complete() })
	table.Release(s)
	mustPanic(t, "armed when free", s.Arm)
	table = New[int](1, nil)
	s, _ = table.Acquire()
	table.Release(s)
	mustPanic(t, "released twice", func() { table.Release(s) })
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}

// TestConcurrentUse lets many goroutines acquire, mark and release slots: two holders of
// one slot would see each other's mark.
func TestConcurrentUse(t *testing.T) {
	table := New[int](48, nil)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				s, ok := table.Acquire()
				if !ok {
					t.Error("Acquire found no slot although some are free")
					return
				}
				mark := g*1_000_000 + i
				s.Value = mark
				s.Arm()
				id := s.ID()
				if table.Lookup(id) != s || s.Value != mark {
					t.Error("two goroutines hold one slot")
					return
				}
				s.Complete()
				table.Release(s)
			}
		})
	}
	wg.Wait()
	if table.Held() != 0 {
		t.Fatalf("%d slots leaked", table.Held())
	}
}

// TestLookupOfCompletedUses looks up uses that have completed, while their slots are released
// and used again.
func TestLookupOfCompletedUses(t *testing.T) {
	table := New[int](1, nil)
	var over atomic.Uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(stop)
		for range 200_000 {
			s, _ := table.Acquire()
			s.Arm()
			s.Complete()
			over.Store(uint64(s.ID()))
			table.Release(s)
		}
	})
	for {
		select {
		case <-stop:
			wg.Wait()
			return
		default:
		}
		if id := ID(over.Load()); table.Lookup(id) != nil {
			t.Errorf("Lookup found %x, whose use has completed", id)
			<-stop
		}
	}
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	table := New[[]byte](64, nil)
	s, _ := table.Acquire()
	table.Release(s)
	if n := ringtest.Allocations(1000, func() {
		s, _ := table.Acquire()
		s.Arm()
		s.Complete()
		table.Release(s)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
