// SPDX-License-Identifier: MIT

package watch

import (
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// ringWatcher opens a watcher on a ring, on a locked thread.
func ringWatcher(t *testing.T, chosen bool) *Watcher {
	t.Helper()
	ringtest.NeedKernel(t, "deferred task work", "6.1")
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	w, err := New(Options{Mode: ModeRing})
	if err != nil {
		t.Fatal(err)
	}
	w.chosen = chosen
	t.Cleanup(func() { w.Close() })
	return w
}

func counter(t *testing.T) int {
	t.Helper()
	fd, err := sys.Counter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fd.Close() })
	return fd.Int()
}

// TestFollowsItsCaller waits on many threads. A watcher that chose the ring automatically
// changes to epoll, any other moves its ring; neither loses an event.
func TestFollowsItsCaller(t *testing.T) {
	for _, chosen := range []bool{true, false} {
		w := ringWatcher(t, chosen)
		logger, await := ringtest.Logger(t)
		w.opts.Logger = logger
		first := w.backend
		fds := []int{counter(t), counter(t), counter(t)}
		for i, fd := range fds {
			if err := w.Add(fd, Read, Trigger(i), fd); err != nil {
				t.Fatal(err)
			}
		}
		p := &[8]byte{1}
		for range 2 * maxMoves {
			for _, fd := range fds {
				rawWrite(fd, p)
			}
			missing := map[int]bool{fds[0]: true, fds[1]: true, fds[2]: true}
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // the thread exits with the goroutine
				for end := time.Now().Add(ringtest.Patience); len(missing) > 0 && time.Now().Before(end); {
					if _, err := w.Poll(0, func(e Event) {
						if missing[e.FD] {
							rawRead(e.FD, p)
						}
						delete(missing, e.FD)
					}); err != nil {
						t.Error(err)
					}
				}
			}()
			<-done
			if len(missing) > 0 {
				t.Fatalf("%v were not reported", missing)
			}
			if err := w.Modify(fds[2], Read, OneShot, nil); err != nil {
				t.Fatal(err)
			}
		}
		name, reason := w.Backend()
		if chosen != (name == "epoll") || chosen != strings.Contains(reason, "LockOSThread") {
			t.Errorf("chosen %v: %s (%s)", chosen, name, reason)
		}
		if b, ok := first.(*ringBackend); !ok || b.moves <= maxMoves || w.Stats().Moves != uint64(b.moves) {
			t.Errorf("the ring did not follow, or Stats does not count it: %+v", w.Stats())
		}
		if chosen {
			await("epoll is used instead")
		}
	}
}

// TestOverflowHappens checks that the suite's overflow test does overflow the CQ.
// Promise: watch/right-error-nothing
func TestOverflowHappens(t *testing.T) {
	w := ringWatcher(t, false)
	b := w.backend.(*ringBackend)
	const n = 500
	var fds []int
	for range n {
		fd := counter(t)
		fds = append(fds, fd)
		if err := w.Add(fd, Read, Edge, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Poll(0, func(Event) {}); err != nil {
		t.Fatal(err)
	}
	p := &[8]byte{1}
	for rounds := 0; b.ring.CQOverflow() == 0; rounds++ {
		if rounds == 100 {
			t.Fatal("nothing overflows")
		}
		for _, fd := range fds {
			rawWrite(fd, p)
		}
		if err := w.Prepare(); err != nil {
			t.Fatal(err)
		}
		for range 2 + n/taskBatch {
			if err := w.Wait(0); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := map[int]bool{}
	for turns := 0; len(seen) < n && turns < 1000; turns++ {
		if _, err := w.Poll(0, func(e Event) { seen[e.FD] = true }); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d were reported", len(seen), n)
	}
}

// TestNoAllocations uses descriptors of every mode.
func TestNoAllocations(t *testing.T) {
	for _, b := range []Mode{ModeEpoll, ModeRing} {
		t.Run(b.String(), func(t *testing.T) {
			if b == ModeRing {
				ringtest.NeedKernel(t, "deferred task work", "6.1")
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			w, err := New(Options{Mode: b})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			var fds []int
			for i := range 30 {
				fd := counter(t)
				if err := w.Add(fd, Read, Trigger(i%3), nil); err != nil {
					t.Fatal(err)
				}
				fds = append(fds, fd)
			}
			p := &[8]byte{1}
			f := func(e Event) {
				rawRead(e.FD, p)
				if e.FD == fds[2] {
					err = w.Modify(e.FD, Read, OneShot, nil)
				}
			}
			round := func() {
				for i, fd := range fds {
					if i%3 < 2 {
						rawWrite(fd, p)
					}
				}
				for n := 0; n < 20; {
					m, err := w.Poll(-1, f)
					if err != nil {
						t.Fatal(err)
					}
					n += m
				}
			}
			if n := ringtest.Allocations(100, round); n > 0 || err != nil {
				t.Errorf("%v allocations per turn, %v", n, err)
			}
		})
	}
}

// TestCloseOfAWaitReleases closes a watcher from another thread than the waiting one, which ends
// the polls: a file that is closed afterwards has ended for its peer.
// Promise: watch/close-thread-waited
func TestCloseOfAWaitReleases(t *testing.T) {
	w := ringWatcher(t, false)
	p, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(p[1])
	if err := w.Add(p[0], Read, Level, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Prepare(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() {
		for w.state.Load()&stWaiting == 0 {
			runtime.Gosched()
		}
		closed <- w.Close()
	}()
	if err := w.Wait(-1); !errors.Is(err, ErrClosed) {
		t.Errorf("Wait: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	_ = syscall.Close(p[0])
	if n, err := syscall.Read(p[1], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the peer reads %d, %v: want the end", n, err)
	}
}

// TestWaitWhileTheKernelRefuses lets the kernel refuse every SQE for lack of memory: Wake and
// Close end a wait all the same.
// Promise: watch/wake-close-end
func TestWaitWhileTheKernelRefuses(t *testing.T) {
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	w := ringWatcher(t, false)
	if _, err := w.Poll(0, nil); err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{}, 1)
	sys.SetFaults(&sys.Faults{
		Enter: func([]*abi.SQE) (int, syscall.Errno) {
			select {
			case refused <- struct{}{}:
			default:
			}
			return 0, syscall.EAGAIN
		},
		Call: func(_ string, n int) (int, syscall.Errno) { return n, 0 },
	})
	defer sys.SetFaults(nil)
	var mu sync.Mutex
	closed := make(chan error, 1)
	go func() {
		<-refused
		w.Wake()
		<-refused
		mu.Lock()
		defer mu.Unlock()
		closed <- w.Close()
	}()
	woken := false
	for err := error(nil); err == nil; {
		mu.Lock()
		err = w.Prepare()
		mu.Unlock()
		if err == nil {
			err = w.Wait(-1)
		}
		if err == nil {
			woken = true
		} else if !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		mu.Lock()
		w.Dispatch(nil)
		mu.Unlock()
	}
	if err := <-closed; err != nil || !woken {
		t.Errorf("close: %v; a wait ended before: %v", err, woken)
	}
}

// TestGiveUpWithoutWatches replaces a ring by epoll while epoll has no watch left. Prepare returns
// that error, and a later turn reports every descriptor.
func TestGiveUpWithoutWatches(t *testing.T) {
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	w := ringWatcher(t, true)
	w.opts.Logger = slog.New(slog.DiscardHandler)
	fds := []int{counter(t), counter(t), counter(t)}
	for _, fd := range fds {
		if err := w.Add(fd, Read, Level, nil); err != nil {
			t.Fatal(err)
		}
		rawWrite(fd, &[8]byte{1})
	}
	b := w.backend.(*ringBackend)
	b.unusable, b.moves = true, maxMoves
	left := 3 // the wakeup and two descriptors
	sys.SetFaults(&sys.Faults{
		Enter: func(e []*abi.SQE) (int, syscall.Errno) { return len(e), 0 },
		Call: func(name string, n int) (int, syscall.Errno) {
			if name == "epoll_ctl" {
				if left--; left < 0 {
					return 0, syscall.ENOSPC
				}
			}
			return n, 0
		},
	})
	err := w.Prepare()
	sys.SetFaults(nil)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Prepare without a watch: %v", err)
	}
	reports := map[int]bool{}
	if _, err := w.Poll(0, func(e Event) { reports[e.FD] = true }); err != nil || len(reports) != len(fds) {
		t.Errorf("then: %v, reports %v", err, reports)
	}
	if name, _ := w.Backend(); name != "epoll" {
		t.Errorf("the backend is %v", name)
	}
}
