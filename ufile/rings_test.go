// SPDX-License-Identifier: MIT

package ufile_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
)

// waiters says whether goroutines wait for rings.
func waiters() bool {
	buf := make([]byte, 1<<20)
	return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "ringside/reactor.(*netpolled).start.func")
}

// TestRingsOpenWhenNeededAndCloseWithTheLastFile counts rings and the
// goroutines that wait for them.
func TestRingsOpenWhenNeededAndCloseWithTheLastFile(t *testing.T) {
	s := newSystem(t, ufile.Options{Mode: ufile.ModeRing, Reactor: reactor.Options{Loops: 2}})
	path := fileOf(t, random(100))
	expect := func(when string, want bool) {
		t.Helper()
		if got := rings(t) > 0; got != want {
			t.Errorf("%s: rings: %v, want %v", when, got, want)
		}
		// A goroutine that was started shows only once it has run.
		for deadline := time.Now().Add(ringtest.Patience); waiters() != want; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: goroutines: %v, want %v", when, !want, want)
			}
		}
	}
	expect("at first", false)
	for range 3 {
		a, b := open(t, s, path, 0), open(t, s, path, 0)
		if _, err := a.Stat(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		expect("before the first positional read", false)
		readAt(t, a, make([]byte, 10), 0)
		expect("after it", true)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		expect("with a file left", true)
		readAt(t, b, make([]byte, 10), 0)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		expect("after the last file", false)
	}
	if got := s.Stats(); got.Ring != 6 || got.Reactor.Submitted != 6 || got.Reactor.Completed != 6 {
		t.Errorf("%+v", got)
	}
}

// TestAutoOpensNoRingForTheCache reads what is cached, which needs none.
func TestAutoOpensNoRingForTheCache(t *testing.T) {
	path := fileOf(t, random(1<<20))
	needNoWait(t, path)
	f := open(t, newSystem(t, ufile.Options{}), path, 0)
	readAt(t, f, make([]byte, 1<<20), 0)
	if n := rings(t); n != 0 {
		t.Errorf("%d descriptors of rings", n)
	}
}
