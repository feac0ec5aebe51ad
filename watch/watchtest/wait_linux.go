// SPDX-License-Identifier: MIT

package watchtest

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/watch"
)

// timeouts run out without an error, not too early and not too late.
func timeouts(r *rig) {
	r.add(r.counter(), watch.Read, watch.Level)
	for _, d := range []time.Duration{0, time.Nanosecond, 300 * time.Microsecond, 20 * time.Millisecond} {
		start := time.Now()
		for { // a wait may end early
			if evs := r.turn(max(d-time.Since(start), 0)); len(evs) > 0 {
				r.Fatalf("reports %v", evs)
			}
			if time.Since(start) >= d {
				break
			}
		}
		if took := time.Since(start); took > d+patience/2 {
			r.Errorf("a wait of %v took %v", d, took)
		}
	}
	start := time.Now()
	r.ok(r.w.Prepare())
	r.ok(r.w.Wait(50 * time.Millisecond))
	if took := time.Since(start); took < 49*time.Millisecond {
		r.Errorf("a wait of 50 ms took %v with nothing to end it", took)
	}
}

// signals interrupt the wait all the time.
func signals(r *rig) {
	fd := r.counter()
	r.add(fd, watch.Read, watch.Edge)
	tid := sys.ThreadID()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = sys.SignalThread(tid, syscall.SIGURG) // the runtime's own, and harmless
				runtime.Gosched()
			}
		}
	}()
	defer func() {
		close(stop)
		<-done
	}()
	// On a slow machine one wait that ends early may seem to last.
	for range 5 {
		start := time.Now()
		r.ok(r.w.Prepare())
		r.ok(r.w.Wait(30 * time.Millisecond))
		if took := time.Since(start); took < 29*time.Millisecond {
			r.Errorf("signals ended a wait of 30 ms after %v", took)
			break
		}
	}
	r.quiet()
	for range 20 {
		r.signal(fd)
		r.awaitOne(fd, watch.Read)
	}
}

// wake ends a wait from another goroutine.
func wake(r *rig) {
	r.add(r.counter(), watch.Read, watch.Level)
	for range 200 {
		woken := make(chan struct{})
		go func() {
			r.w.Wake()
			close(woken)
		}()
		if evs := r.turn(patience); len(evs) > 0 {
			r.Fatalf("reports %v", evs)
		}
		<-woken
		r.turn(0) // it may have come before the wait, or end the next
	}
	start := time.Now()
	timer := time.AfterFunc(20*time.Millisecond, r.w.Wake)
	defer timer.Stop()
	for time.Since(start) < 19*time.Millisecond { // earlier wakes can end a wait early
		r.turn(patience)
	}
	if took := time.Since(start); took > patience/2 {
		r.Errorf("woken after %v", took)
	}
}

// wakeBefore ends the next wait, once.
func wakeBefore(r *rig) {
	r.quiet()
	for range 3 {
		r.w.Wake()
	}
	r.ok(r.w.Prepare())
	r.ok(r.w.Wait(-1))
	start := time.Now()
	r.ok(r.w.Prepare())
	r.ok(r.w.Wait(30 * time.Millisecond))
	if took := time.Since(start); took < 29*time.Millisecond {
		r.Errorf("several wakes ended more than one wait: %v", took)
	}
}

// shared is a watcher with a lock that is not held during Wait, as in a scheduler.
type shared struct {
	*rig
	sync.Mutex
	stop bool
	done chan struct{}
}

// share runs turns on a separate thread until the returned function is called. f runs
// under the lock.
func share(r *rig, f func(watch.Event)) (s *shared, end func()) {
	s = &shared{rig: r, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for s.turn(f) {
		}
	}()
	return s, func() {
		s.Lock()
		s.stop = true
		s.Unlock()
		r.w.Wake()
		<-s.done
	}
}

func (s *shared) turn(f func(watch.Event)) bool {
	s.Lock()
	err := s.w.Prepare()
	s.Unlock()
	if err == nil {
		err = s.w.Wait(-1)
	}
	s.Lock()
	defer s.Unlock()
	if err != nil {
		if !errors.Is(err, os.ErrClosed) {
			s.Errorf("turn: %v", err)
		}
		return false
	}
	s.w.Dispatch(f)
	return !s.stop
}

// changeMeanwhile adds and modifies while another goroutine waits.
func changeMeanwhile(r *rig) {
	seen := make(chan watch.Event, 16)
	s, end := share(r, func(e watch.Event) { seen <- e })
	defer end()
	next := func() watch.Event {
		select {
		case e := <-seen:
			return e
		case <-time.After(patience):
			r.Fatal("nothing was reported")
			return watch.Event{}
		}
	}
	for i := range 100 {
		s.Lock()
		fd := r.counter()
		r.signal(fd)
		r.ok(r.w.Add(fd, 0, watch.Edge, i))
		s.Unlock()
		s.Lock()
		r.ok(r.w.Modify(fd, watch.Read, watch.Edge, -i))
		s.Unlock()
		if e := next(); e.FD != fd || e.Value != -i {
			r.Fatalf("report %+v, want %d with %d", e, fd, -i)
		}
		s.Lock()
		r.ok(r.w.Remove(fd))
		r.shut(fd)
		s.Unlock()
	}
}

// removeMeanwhile removes while another goroutine waits, and closes: the peer sees the
// end although nothing else happens.
func removeMeanwhile(r *rig) {
	s, end := share(r, func(watch.Event) {})
	defer end()
	for range 50 {
		a, b := r.pair()
		r.ok(syscall.SetNonblock(b, false))
		s.Lock()
		r.ok(r.w.Add(a, watch.Read, watch.Level, nil))
		s.Unlock()
		s.Lock()
		r.ok(r.w.Remove(a))
		r.shut(a)
		s.Unlock()
		var p [1]byte
		if n, err := syscall.Read(b, p[:]); n != 0 || err != nil {
			r.Fatalf("read %d, %v: want the end", n, err)
		}
		r.shut(b)
	}
}

// waitTwice waits twice without dispatching in between: the second wait returns at
// once, and no event of the first is lost.
func waitTwice(r *rig) {
	one, two := r.counter(), r.counter()
	r.add(one, watch.Read, watch.Edge)
	r.add(two, watch.Read, watch.Edge)
	r.quiet()
	r.signal(one)
	r.ok(r.w.Prepare())
	r.ok(r.w.Wait(-1))
	r.signal(two)
	for range 3 {
		r.ok(r.w.Wait(-1))
		r.ok(r.w.Prepare())
	}
	got := map[int]bool{}
	for len(got) < 2 {
		for _, e := range r.await() {
			got[e.FD] = true
		}
	}
	if !got[one] || !got[two] {
		r.Errorf("reports of %v", got)
	}
}

// otherThreads makes each turn on another thread. Nothing is lost; an Edge may
// be repeated.
func otherThreads(t *testing.T, open func() (Watcher, error)) {
	r := newRig(t, open)
	defer func() { r.ok(r.w.Close()) }()
	fds := map[watch.Trigger]int{}
	for _, mode := range everyMode {
		fds[mode] = r.counter()
		r.add(fds[mode], watch.Read, mode)
	}
	for range 25 {
		for _, fd := range fds {
			r.signal(fd)
		}
		missing := len(fds)
		for turns := 0; missing > 0; turns++ {
			if turns > 100 {
				t.Fatalf("%d of %d are not reported", missing, len(fds))
			}
			elsewhere(func() {
				_, err := r.w.Poll(time.Second, func(e watch.Event) {
					if r.drain(e.FD) > 0 {
						missing--
					}
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		r.ok(r.w.Modify(fds[watch.OneShot], watch.Read, watch.OneShot, nil))
	}
}

// elsewhere runs f on a thread that ends with it.
func elsewhere(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread exits
		f()
	}()
	<-done
}
