// SPDX-License-Identifier: MIT

package watch_test

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/faultsweep"
	"github.com/ringside-io/ringside/watch"
)

// sweptPipes are descriptors that a run of the sweep watches.
type sweptPipes [][2]int

func (p sweptPipes) close() {
	for _, fds := range p {
		_ = syscall.Close(fds[0])
		_ = syscall.Close(fds[1])
	}
}

func newSweptPipes(t *faultsweep.Trial, n int) (p sweptPipes) {
	for range n {
		var fds [2]int
		if err := syscall.Pipe2(fds[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
			p.close()
			t.Fatalf("%v", err)
		}
		p = append(p, fds)
	}
	return p
}

// feed makes each pipe readable.
func (p sweptPipes) feed(t *faultsweep.Trial) {
	for _, fds := range p {
		if _, err := syscall.Write(fds[1], []byte("x")); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// drain empties a pipe or an eventfd and returns how many bytes it had.
func drain(fd int) int {
	n, _ := syscall.Read(fd, make([]byte, 64))
	return max(n, 0)
}

// turns polls until cond holds. Each poll may fail with the injected error. turns returns
// false when the watcher has failed permanently.
func turns(t *faultsweep.Trial, w *watch.Watcher, f func(watch.Event), what string, cond func() bool) bool {
	failures := 0
	for end := time.Now().Add(faultsweep.Patience / 2); !cond(); {
		if time.Now().After(end) {
			t.Errorf("did not become true: %s", what)
			return false
		}
		_, err := w.Poll(time.Second, f)
		if err == nil {
			continue
		}
		t.Judge("Poll", err)
		if failures++; failures > 3 {
			return false
		}
	}
	return true
}

// onPipes opens a watcher and n pipes for do, which runs on the watcher's thread.
func onPipes(o watch.Options, n int, do func(*faultsweep.Trial, *watch.Watcher, sweptPipes)) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p := newSweptPipes(t, n)
		defer p.close()
		t.Arm()
		defer t.Disarm()
		w, err := watch.New(o)
		if t.Judge("New", err) {
			do(t, w, p)
		}
	}
}

// sweptModes watches descriptors in all modes, and changes and removes some.
func sweptModes(o watch.Options) func(*faultsweep.Trial) {
	return onPipes(o, 4, func(t *faultsweep.Trial, w *watch.Watcher, p sweptPipes) {
		modes := []watch.Trigger{watch.Level, watch.Edge, watch.OneShot, watch.Level}
		added := 0
		for i, fds := range p {
			if t.Judge("Add", w.Add(fds[0], watch.Read, modes[i], i)) {
				added |= 1 << i
			}
		}
		if w.Len() > len(p) || added == 0 && w.Len() != 0 {
			t.Errorf("%d descriptors are registered", w.Len())
		}
		removed, seen := false, 0
		f := func(ev watch.Event) {
			i := ev.Value.(int)
			if ev.FD != p[i][0] || removed && i == 3 {
				t.Errorf("got an event of descriptor %d, which is not watched or has another value than %d", ev.FD, i)
			}
			if drain(ev.FD) > 0 {
				seen |= 1 << i
			}
		}
		all := func(want int) func() bool { return func() bool { return seen&want == want } }
		p.feed(t)
		alive := turns(t, w, f, "all are reported", all(added))
		if alive {
			seen = 0
			if added&8 != 0 {
				if err := w.Remove(p[3][0]); err != nil {
					t.Errorf("Remove: %v", err)
				}
			}
			removed = true
			if added&4 != 0 { // reports it again
				t.Judge("Modify", w.Modify(p[2][0], watch.Read, watch.OneShot, 2))
			}
			p.feed(t)
			alive = turns(t, w, f, "all are reported again", all(added&7))
		}
		t.Disarm()
		if alive {
			seen = 0
			for i := range 2 {
				drain(p[i][0])
			}
			p.feed(t)
			turns(t, w, f, "the descriptors that are still watched are reported", all(added&3))
		}
		w.Wake()
		if err := w.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := w.Poll(0, f); !errors.Is(err, watch.ErrClosed) {
			t.Errorf("Poll after close: %v", err)
		}
	})
}

// sweptLoop runs a loop with posts, timers and a descriptor.
func sweptLoop(o watch.Options) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		p := newSweptPipes(t, 1)
		defer p.close()
		t.Arm()
		defer t.Disarm()
		l, err := watch.NewLoop(o)
		if !t.Judge("NewLoop", err) {
			return
		}
		fired, read, posted := false, 0, 0
		finish := func() {
			if fired && read == 1 && posted == 3 {
				l.Stop()
			}
		}
		l.AfterFunc(time.Millisecond, func() { fired = true; finish() })
		ok := t.Judge("Add", l.Add(p[0][0], watch.Read, watch.Level, func(watch.Events) { read += drain(p[0][0]); finish() }))
		if ok {
			p.feed(t)
			go func() {
				for range 3 {
					_ = l.Post(func() { posted++; finish() }) // Post fails where Run has failed.
				}
			}()
			ctx, cancel := context.WithTimeout(context.Background(), faultsweep.Patience/2)
			defer cancel()
			if t.Judge("Run", l.Run(ctx)) && (!fired || read != 1 || posted != 3) {
				t.Errorf("the loop ended with %v, %d, %d", fired, read, posted)
			}
		}
		t.Disarm()
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := l.Post(func() {}); !errors.Is(err, watch.ErrClosed) {
			t.Errorf("a post after close: %v", err)
		}
	}
}

// sweptWake ends a wait of another goroutine, by Wake and by Close.
func sweptWake(o watch.Options) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		t.Arm()
		defer t.Disarm()
		w, err := watch.New(o)
		if !t.Judge("New", err) {
			return
		}
		ended := make(chan error, 1)
		var mu sync.Mutex // protects the watcher: all calls except Wait and Wake hold it
		locked := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for {
				var err error
				locked(func() { err = w.Prepare() })
				if err == nil {
					err = w.Wait(-1)
				}
				if err != nil {
					ended <- err
					return
				}
				locked(func() { w.Dispatch(func(watch.Event) {}) })
				select {
				case ended <- nil:
				default:
				}
			}
		}()
		var waited error
		for end := time.Now().Add(faultsweep.Patience / 2); ; {
			w.Wake()
			select {
			case waited = <-ended:
			case <-time.After(time.Millisecond):
				if time.Now().After(end) {
					t.Fatalf("Wake does not end a wait")
				}
				continue
			}
			break
		}
		t.Disarm()
		if waited != nil {
			t.Judge("Wait", waited)
		}
		locked(func() { err = w.Close() })
		if err != nil {
			t.Errorf("close: %v", err)
		}
		for waited == nil {
			waited = <-ended
		}
		if _, fired := t.Choice(); !errors.Is(waited, watch.ErrClosed) && !fired {
			t.Errorf("a wait under Close: %v", waited)
		}
	}
}

// sweptOperations are all operations that the sweep runs.
func sweptOperations() []faultsweep.Operation {
	ring, epoll := watch.Options{Mode: watch.ModeRing}, watch.Options{Mode: watch.ModeEpoll}
	auto := watch.Options{}
	// Where io_uring was not requested, epoll replaces it.
	falls := map[string][]faultsweep.Choice{}
	for _, kind := range []string{"io_uring_setup", "mmap", "eventfd"} {
		for _, c := range faultsweep.Choices[kind] {
			falls[kind] = append(falls[kind], faultsweep.Choice{Errno: c.Errno, Passing: true, Once: true})
		}
	}
	return []faultsweep.Operation{
		{Name: "modes, io_uring", Syscalls: true, Run: sweptModes(ring), Covers: "New Watcher.Add Watcher.Modify Watcher.Remove Watcher.Poll Watcher.Close"},
		{Name: "modes, epoll", Run: sweptModes(epoll)},
		{Name: "modes, auto", Run: sweptModes(auto), Instead: falls, Only: []string{"io_uring_setup", "mmap", "eventfd"}},
		{Name: "changes, io_uring", Syscalls: true, Run: sweptChanges(ring), Opened: true, Most: 3},
		{Name: "loop, io_uring", Syscalls: true, Run: sweptLoop(ring), Opened: true, Most: 6, Covers: "NewLoop Loop.Add Loop.AfterFunc Loop.Post Loop.Run Loop.Stop Loop.Close"},
		{Name: "loop, epoll", Run: sweptLoop(epoll)},
		{Name: "steps, io_uring", Syscalls: true, Run: sweptSteps(ring), Opened: true, Most: 6,
			Covers: "Loop.Modify Loop.Remove Loop.NewTimer Loop.OnIdle Loop.OnSignal Loop.Drain Timer.Reset Timer.Stop Hook.Remove"},
		{Name: "steps, epoll", Run: sweptSteps(epoll), Opened: true},
		{Name: "wake, io_uring", Syscalls: true, Run: sweptWake(ring), Opened: true, Most: 4, Covers: "Watcher.Prepare Watcher.Wait Watcher.Dispatch Watcher.Wake"},
		{Name: "wake, epoll", Run: sweptWake(epoll), Most: 4},
	}
}

// ready prepares a test for the sweep.
func ready(t *testing.T) {
	need(t, watch.ModeRing)
	// Package signal starts goroutines at its first use that stay. A signal that a closed
	// loop no longer handles must not end the process.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGUSR2)
	t.Cleanup(func() { signal.Stop(caught) })
}

// TestFaultSweep makes each call to the kernel fail in turn.
// Promise: watch/right-error-nothing
func TestFaultSweep(t *testing.T) {
	faultsweep.Need(t)
	ready(t)
	faultsweep.Check(t, sweptOperations())
}

// TestFaultSweepSimulated does the same with simulated rings.
// Promise: watch/right-error-nothing
func TestFaultSweepSimulated(t *testing.T) {
	ready(t)
	faultsweep.CheckSimulated(t, sweptOperations())
}

// TestFaultSweepCoversAll compares the sweep with the exported functions of the package.
// Promise: watch/right-error-nothing
func TestFaultSweepCoversAll(t *testing.T) {
	faultsweep.API(t, sweptOperations(), faultsweep.Exempt{
		"makes no call to the kernel": "FD Watcher.Backend Watcher.Len Loop.Backend Loop.Len Timer.Active " +
			"Events.String Trigger.String Watcher.Stats Loop.Stats Stats.Plus",
	})
}
