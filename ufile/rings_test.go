// SPDX-License-Identifier: MIT

package ufile_test

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/internal/sys"
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
		readAt(t, b, make([]byte, 10), 0)
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
	if got := s.Stats(); got.Ring != 9 || got.Reactor.Submitted != 9 || got.Reactor.Completed != 9 {
		t.Errorf("%+v", got)
	}
}

// TestRingsOutliveTheFilesOfTheDefaultSystem opens and closes single files, whose
// rings are kept for the next one, for a while.
func TestRingsOutliveTheFilesOfTheDefaultSystem(t *testing.T) {
	needRing(t)
	path := fileOf(t, random(8192))
	needDirect(t, path)
	before := -1
	for range 5 {
		f, err := ufile.OpenFile(path, os.O_RDONLY|sys.ODirect, 0)
		if err != nil {
			t.Fatal(err)
		}
		readInRing(t, f, ufile.AlignedBuffer(4096))
		if n := rings(t); before >= 0 && n != before {
			t.Errorf("%d rings, before %d", n, before)
		} else if before = n; n == 0 {
			t.Error("no rings")
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(ringtest.Patience); rings(t) > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d rings are still open", rings(t))
		}
	}
}

// TestSingleReadsOpenNoRing makes one operation at a time.
func TestSingleReadsOpenNoRing(t *testing.T) {
	path := fileOf(t, random(8192))
	needDirect(t, path)
	f := open(t, newSystem(t, ufile.Options{}), path, os.O_RDWR|sys.ODirect)
	p := ufile.AlignedBuffer(4096)
	for range 10 {
		readAt(t, f, p, 0)
		writeAt(t, f, p, 4096)
	}
	if n := rings(t); n != 0 {
		t.Errorf("%d descriptors of rings", n)
	}
	if got := f.Stats(); got != (ufile.Stats{Plain: 20}) {
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
