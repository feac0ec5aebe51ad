// SPDX-License-Identifier: MIT

package watch

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// benchWatchers opens one watcher of each backend on a thread of their own, or
// skips the benchmark.
func benchWatchers(b *testing.B) map[Backend]*Watcher {
	b.Helper()
	runtime.LockOSThread()
	b.Cleanup(runtime.UnlockOSThread)
	ws := map[Backend]*Watcher{}
	for _, backend := range []Backend{Epoll, IOUring} {
		w, err := New(Options{Backend: backend})
		if err != nil {
			b.Skip(err)
		}
		b.Cleanup(func() { w.Close() })
		ws[backend] = w
	}
	return ws
}

// inTurns runs both rounds in small alternating batches, so that a change of the
// machine's pace hits both, and floor, which both contain, with them. It reports
// ns per event of each backend net of the floor, and how many times cheaper the
// ring is.
func inTurns(b *testing.B, perRound int, epoll, ring, floor func()) {
	batch := max(1000/perRound, 1)
	runs := []func(){floor, epoll, ring}
	var spent [3]time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	rounds := 0
	for rounds*perRound < b.N {
		for i, run := range runs {
			start := time.Now()
			for range batch {
				run()
			}
			spent[i] += time.Since(start)
		}
		rounds += batch
	}
	n := float64(rounds * perRound)
	e, r := float64(spent[1]-spent[0])/n, float64(spent[2]-spent[0])/n
	b.ReportMetric(0, "ns/op") // of the three together: means nothing
	b.ReportMetric(float64(spent[0])/n, "floor-ns/event")
	b.ReportMetric(e, "epoll-ns/event")
	b.ReportMetric(r, "uring-ns/event")
	b.ReportMetric(e/r, "ratio")
}

func eventFDs(b *testing.B, n int) []int {
	b.Helper()
	fds := make([]int, n)
	for i := range fds {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			b.Skipf("needs %d descriptors: %v", n, err)
		}
		b.Cleanup(func() { unix.Close(fd) })
		fds[i] = fd
	}
	return fds
}

func rawWrite(fd int, p *[8]byte) {
	if _, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(p)), 8); errno != 0 {
		panic(errno)
	}
}

func rawRead(fd int, p *[8]byte) {
	if _, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(p)), 8); errno != 0 {
		panic(errno)
	}
}

// BenchmarkEventFD signals some eventfds, waits for all and reads each. The
// figures are net of the write and the read.
func BenchmarkEventFD(b *testing.B) {
	for _, c := range []struct {
		mode         Mode
		active, idle int
		among        bool // the idle lie among the active, in memory too
	}{{Edge, 1, 0, false}, {Edge, 10, 0, false}, {Edge, 100, 0, false}, {Edge, 1000, 0, false},
		{Edge, 100, 10000, false}, {Edge, 100, 10000, true},
		{Level, 1, 0, false}, {Level, 10, 0, false}, {Level, 100, 0, false}, {Level, 1000, 0, false}, {OneShot, 100, 0, false}} {
		b.Run(fmt.Sprintf("%v/active=%d/idle=%d/among=%v", c.mode, c.active, c.idle, c.among), func(b *testing.B) {
			benchEventFD(b, c.mode, c.active, c.idle, c.among)
		})
	}
}

func benchEventFD(b *testing.B, mode Mode, active, idle int, among bool) {
	raiseFiles(b, 3*active+idle)
	ws := benchWatchers(b)
	p := &[8]byte{1, 1}
	// All are opened in the order in which they lie, so that the floor meets the
	// same distances in memory. The idle are for both, as they never fire.
	var quiet, bare []int
	busies := map[*Watcher][]int{}
	for range active {
		bare = append(bare, eventFDs(b, 1)...)
		for _, w := range ws {
			busies[w] = append(busies[w], eventFDs(b, 1)...)
		}
		if among {
			quiet = append(quiet, eventFDs(b, idle/active)...)
		}
	}
	if !among {
		quiet = eventFDs(b, idle)
	}
	round := func(w *Watcher) func() {
		busy := busies[w]
		spread(b, w, mode, busy, quiet, among)
		f := func(e Event) {
			rawRead(e.FD, p)
			if mode == OneShot {
				if err := w.Modify(e.FD, Read, mode, nil); err != nil {
					b.Fatal(err)
				}
			}
		}
		return func() {
			for _, fd := range busy {
				rawWrite(fd, p)
			}
			for n := 0; n < active; {
				m, err := w.Poll(-1, f)
				if err != nil {
					b.Fatal(err)
				}
				n += m
			}
		}
	}
	inTurns(b, active, round(ws[Epoll]), round(ws[IOUring]), func() {
		for _, fd := range bare {
			rawWrite(fd, p)
		}
		for _, fd := range bare {
			rawRead(fd, p)
		}
	})
}

// spread has eventfds watched, the busy ones before the quiet or among them.
func spread(b *testing.B, w *Watcher, mode Mode, busy, quiet []int, among bool) {
	fds := slices.Concat(busy, quiet)
	if among {
		slices.Sort(fds)
	}
	for _, fd := range fds {
		if err := w.Add(fd, Read, mode, nil); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.Poll(0, func(Event) {}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSocketPairs keeps one message in flight on each of 100 socket pairs,
// both of whose ends are watched: what one receives it sends back.
func BenchmarkSocketPairs(b *testing.B) {
	for _, mode := range []Mode{Edge, Level} {
		b.Run(mode.String(), func(b *testing.B) { benchPairs(b, mode, 100) })
	}
}

func benchPairs(b *testing.B, mode Mode, pairs int) {
	ws := benchWatchers(b)
	p := &[8]byte{1}
	round := func(w *Watcher) func() {
		raiseFiles(b, 6*pairs)
		for range pairs {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			for _, fd := range fds {
				b.Cleanup(func() { unix.Close(fd) })
				if err := w.Add(fd, Read, mode, nil); err != nil {
					b.Fatal(err)
				}
			}
			rawWrite(fds[0], p)
		}
		f := func(e Event) {
			rawRead(e.FD, p)
			rawWrite(e.FD, p)
		}
		return func() {
			for n := 0; n < pairs; {
				m, err := w.Poll(-1, f)
				if err != nil {
					b.Fatal(err)
				}
				n += m
			}
		}
	}
	inTurns(b, pairs, round(ws[Epoll]), round(ws[IOUring]), func() {})
}

// BenchmarkWake wakes a waiting goroutine from another one and back.
func BenchmarkWake(b *testing.B) {
	for _, backend := range []Backend{Epoll, IOUring} {
		b.Run(backend.String(), func(b *testing.B) {
			w := benchWatchers(b)[backend]
			turns := make(chan struct{})
			go func() {
				for range turns {
					w.Wake()
				}
			}()
			defer close(turns)
			b.ReportAllocs()
			for b.Loop() {
				turns <- struct{}{}
				if _, err := w.Poll(-1, func(Event) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// raiseFiles makes sure that n descriptors can be opened.
func raiseFiles(b testing.TB, n int) {
	b.Helper()
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		b.Fatal(err)
	}
	if want := uint64(2*n + 200); uint64(lim.Cur) < want {
		lim.Cur = min(want, lim.Max)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			b.Fatal(err)
		}
	}
}
