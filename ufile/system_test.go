// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
)

// waiters reports whether goroutines wait for rings.
func waiters() bool {
	buf := make([]byte, 1<<20)
	return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "ringside/reactor.(*netpolled).Start.func")
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
		// A goroutine that was started is counted only once it has run.
		for deadline := time.Now().Add(ringtest.Patience); waiters() != want; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: goroutines: %v, want %v", when, !want, want)
			}
		}
	}
	awaitNoRings(t)
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

// TestRingsOutliveTheFilesOfTheDefaultSystem opens and closes single files. The rings stay
// open for some time for the next file.
func TestRingsOutliveTheFilesOfTheDefaultSystem(t *testing.T) {
	needRing(t)
	path := fileOf(t, random(8192))
	needDirect(t, path)
	before := -1
	once := func() {
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
	for range 5 {
		once()
	}
	ringtest.EndsForDetectors(t, func() { before = -1; once() }, func() bool { return rings(t) == 0 })
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

// TestAutoOpensNoRingForTheCache reads cached data, which needs no ring.
func TestAutoOpensNoRingForTheCache(t *testing.T) {
	path := fileOf(t, random(1<<20))
	needNoWait(t, path)
	f := open(t, newSystem(t, ufile.Options{}), path, 0)
	readAt(t, f, make([]byte, 1<<20), 0)
	if n := rings(t); n != 0 {
		t.Errorf("%d descriptors of rings", n)
	}
}

// TestStatsCountThePath reads cached data and writes, in each mode, and checks the counters.
func TestStatsCountThePath(t *testing.T) {
	content := random(8192)
	for mode, want := range map[ufile.Mode]ufile.Stats{
		ufile.ModeAuto:  {Cached: 1, Plain: 1}, // buffered writes are system calls
		ufile.ModeRing:  {Ring: 2},
		ufile.ModePlain: {Plain: 2},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			s := newSystem(t, ufile.Options{Mode: mode})
			path := fileOf(t, content)
			if mode == ufile.ModeAuto {
				needNoWait(t, path)
			}
			f := open(t, s, path, os.O_RDWR)
			p := make([]byte, 4096)
			readAt(t, f, p, 100)
			writeAt(t, f, p, 100)
			if got := f.Stats(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			want.Reactor = s.Stats().Reactor
			if got := s.Stats(); got != want || got.Reactor.Submitted != want.Ring || got.Reactor.InFlight != 0 {
				t.Errorf("the System: %+v, want %+v", got, want)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if got := s.Stats(); got != want {
				t.Errorf("after Close %+v, want %+v", got, want)
			}
		})
	}
}

// TestDirectReadsMeetInARing reads with O_DIRECT: one goroutine by system calls, many
// goroutines through a ring.
func TestDirectReadsMeetInARing(t *testing.T) {
	needRing(t)
	path := fileOf(t, random(1<<20))
	needDirect(t, path)
	s := newSystem(t, ufile.Options{})
	f := open(t, s, path, os.O_RDWR|sys.ODirect)
	for i := range 5 {
		readAt(t, f, ufile.AlignedBuffer(4096), int64(i)*4096)
		writeAt(t, f, ufile.AlignedBuffer(4096), int64(i)*4096)
	}
	// A goroutine whose stack has moved counts as another goroutine once.
	if got := f.Stats(); got.Plain < 7 || got.Plain+got.Ring != 10 || got.Cached != 0 {
		t.Errorf("one after the other: %+v", got)
	}
	var wg sync.WaitGroup
	for g := range 64 {
		p := ufile.AlignedBuffer(4096)
		wg.Go(func() {
			for i := range 20 {
				if n, err := f.ReadAt(p, int64((g*20+i)%256)*4096); n != len(p) || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	if got := f.Stats(); got.Ring == 0 || got.Cached != 0 || got.Ring+got.Plain != 10+64*20 {
		t.Errorf("64 at a time: %+v", got)
	}
}

// TestHopelessOffsetsDoNotSpoilTheCache reads at offsets for which the kernel returns the
// errno of a kernel without RWF_NOWAIT.
func TestHopelessOffsetsDoNotSpoilTheCache(t *testing.T) {
	path := fileOf(t, random(4096))
	needNoWait(t, path)
	f := open(t, newSystem(t, ufile.Options{}), path, os.O_RDONLY)
	p := make([]byte, 100)
	for _, off := range []int64{math.MaxInt64, math.MaxInt64 - 99, 1 << 62, -1} {
		if _, err := f.ReadAt(p, off); err == nil {
			t.Errorf("reads at %d", off)
		}
	}
	before := f.Stats().Cached
	readAt(t, f, p, 0)
	if got := f.Stats().Cached; got != before+1 {
		t.Errorf("%d reads from the cache, want 1", got-before)
	}
}

func TestBackendGivesTheReason(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		name, reason := s.Backend()
		if (name == "io_uring") != (reason == "") || name != "io_uring" && name != "plain" {
			t.Errorf("backend %q, reason %q", name, reason)
		}
	})
	if name, reason := newSystem(t, ufile.Options{Mode: ufile.ModePlain}).Backend(); name != "plain" || reason == "" {
		t.Errorf("ModePlain: backend %q, reason %q", name, reason)
	}
	needRing(t)
	if name, reason := ufile.Backend(); name != "io_uring" {
		t.Errorf("backend %q although io_uring works: %s", name, reason)
	}
}

func TestModeHasAName(t *testing.T) {
	for m, want := range map[ufile.Mode]string{ufile.ModeAuto: "auto", ufile.ModeRing: "io_uring", ufile.ModePlain: "plain", 7: "Mode(7)"} {
		if got := m.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// envChild makes the test binary a child of TestInAProcessWithoutRings.
const envChild = "RINGSIDE_TEST_CHILD"

// TestInAProcessWithoutRings runs the suite and the test of the fallback in a process in
// which io_uring is forbidden from the start.
func TestInAProcessWithoutRings(t *testing.T) {
	if os.Getenv(envChild) != "" {
		fallsBack(t)
		return
	}
	// The whole suite runs without rings in ModePlain, and in make forbidden, where
	// io_uring is refused.
	run := "-test.run=^(TestInAProcessWithoutRings|TestSuite)$/./^(ReadAt|Close)$/^(Offsets|ReadAt)$"
	cmd := exec.Command(os.Args[0], run, "-test.v")
	cmd.Env = append(os.Environ(), envChild+"=1", "RINGSIDE_LONG=1", features.EnvBackend+"=plain")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range []string{"--- PASS: TestInAProcessWithoutRings", "--- PASS: TestSuite/auto", "--- SKIP: TestSuite/io_uring", "--- PASS: TestSuite/plain"} {
		if !strings.Contains(string(out), line) {
			t.Errorf("the output of the child lacks %q:\n%s", line, out)
		}
	}
}

func fallsBack(t *testing.T) {
	_, err := ufile.NewSystem(ufile.Options{Mode: ufile.ModeRing})
	forbidden, ok := errors.AsType[*features.ForbiddenError](err)
	if !ok || !errors.Is(err, features.ErrForbidden) || forbidden.Remedy == "" || !strings.Contains(err.Error(), forbidden.Remedy) {
		t.Errorf("the error of ModeRing does not name the remedy: %v", err)
	}
	name, reason := ufile.Backend()
	if name != "plain" || !strings.Contains(reason, features.EnvBackend) {
		t.Errorf("backend %q, reason %q", name, reason)
	}
	content := random(10000)
	f, err := ufile.Open(fileOf(t, content))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, len(content))
	readAt(t, f, p, 0)
	if !bytes.Equal(p, content) {
		t.Error("read other data than the file holds")
	}
	if s := f.Stats(); s.Ring != 0 || s.Cached+s.Plain == 0 {
		t.Errorf("%+v", s)
	}
	if n := rings(t); n != 0 {
		t.Errorf("%d rings in a process that must not have any", n)
	}
}

func TestNoSystemHasAnUnknownMode(t *testing.T) {
	for _, m := range []ufile.Mode{features.ModeEpoll, features.ModeNet, 9} {
		if _, err := ufile.NewSystem(ufile.Options{Mode: m}); err == nil {
			t.Errorf("%v was accepted", m)
		}
	}
}

// TestDroppedFiles drops files without closing them: the collector closes them, as it
// closes those of package os, and the rings with the last one.
func TestDroppedFiles(t *testing.T) {
	s := newSystem(t, ufile.Options{Mode: ufile.ModeRing})
	path := fileOf(t, random(100))
	for range 20 {
		f, err := s.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		readAt(t, f, make([]byte, 10), 0)
	}
	deadline := time.Now().Add(ringtest.Patience)
	for rings(t) > 0 || openings(t, path) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d rings and %d files are still open", rings(t), openings(t, path))
		}
		runtime.GC()
	}
	if got := s.Stats(); got.Ring != 20 {
		t.Errorf("%+v", got)
	}
}

// TestConnectionOutlivesTheFile drops the File of a SyscallConn in use.
func TestConnectionOutlivesTheFile(t *testing.T) {
	s := newSystem(t, ufile.Options{})
	f, err := s.Open(fileOf(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	f = nil
	for range 5 {
		runtime.GC()
		if err := conn.Control(func(uintptr) {}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.KeepAlive(conn)
}

// openings counts the descriptors of a file.
func openings(t *testing.T, path string) int {
	t.Helper()
	return len(ringtest.Descriptors(t, path))
}

// TestLargeColdReadsOfFewGoroutines reads large blocks that are not cached: by system calls
// while few are in flight.
func TestLargeColdReadsOfFewGoroutines(t *testing.T) {
	const block, goroutines, each = 64 << 10, 12, 8
	content := random(block * goroutines * each)
	path := fileOf(t, content)
	forgetCached(t, path)
	f := open(t, newSystem(t, ufile.Options{}), path, os.O_RDONLY)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			p := make([]byte, block)
			for i := range each {
				off := (i*goroutines + g) * block
				if n, err := f.ReadAt(p, int64(off)); n != block || err != nil || !bytes.Equal(p, content[off:][:block]) {
					t.Errorf("at %d: %d, %v, or wrong data", off, n, err)
				}
			}
		})
	}
	wg.Wait()
	// The rest of a block that the kernel has read ahead in part is not large.
	if got := f.Stats(); got.Ring > got.Cached || got.Cached+got.Plain < goroutines*each {
		t.Errorf("%+v", got)
	}
}
