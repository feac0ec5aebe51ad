// SPDX-License-Identifier: MIT

package watchtest

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/watch"
)

// closeWhileWaiting ends the wait, with or without descriptors.
func closeWhileWaiting(t *testing.T, open func() (Watcher, error)) {
	for i := range 50 {
		r := newRig(t, open)
		for range i % 3 {
			r.add(r.counter(), watch.Read, watch.Level)
		}
		ended, prepared := make(chan error), make(chan struct{})
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := r.w.Prepare(); err != nil {
				t.Error(err)
			}
			close(prepared)
			err := r.w.Wait(-1)
			for err == nil { // woken early
				err = r.w.Wait(-1)
			}
			ended <- err
		}()
		<-prepared
		for range i { // nearer to the wait, or into it
			runtime.Gosched()
		}
		r.ok(r.w.Close())
		select {
		case err := <-ended:
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("the wait ended with %v", err)
			}
		case <-time.After(patience):
			t.Fatal("the wait does not end")
		}
	}
}

// closeInCallback stops the dispatch it is in.
func closeInCallback(t *testing.T, open func() (Watcher, error)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := newRig(t, open)
	for range 5 {
		fd := r.counter()
		r.signal(fd)
		r.add(fd, watch.Read, watch.Level)
	}
	n := 0
	for n == 0 {
		_, err := r.w.Poll(-1, func(watch.Event) {
			n++
			if err := r.w.Close(); err != nil {
				t.Error(err)
			}
		})
		r.ok(err)
	}
	if n != 1 {
		t.Errorf("%d reports after the close", n-1)
	}
	if _, err := r.w.Poll(0, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("poll: %v", err)
	}
}

// wakeWhileClosing calls Wake from many goroutines while the watcher is closed.
// Eventfds take over the numbers of its descriptors at once; Wake must not write to
// them.
func wakeWhileClosing(t *testing.T, open func() (Watcher, error)) {
	for range rounds(30, 8) {
		r := newRig(t, open)
		var others, waiter sync.WaitGroup
		stop := make(chan struct{})
		for range 3 {
			others.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						r.w.Wake()
					}
				}
			})
		}
		prepared := make(chan struct{})
		waiter.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := r.w.Prepare(); err != nil {
				t.Error(err)
			}
			close(prepared)
			for r.w.Wait(-1) == nil {
			}
		})
		<-prepared
		r.ok(r.w.Close())
		var fds []int
		for range 8 {
			fds = append(fds, r.counter())
		}
		r.w.Wake()
		close(stop)
		others.Wait()
		waiter.Wait()
		for _, fd := range fds {
			if n := r.drain(fd); n != 0 {
				t.Errorf("a wake hit a descriptor that is not the watcher's")
			}
			r.shut(fd)
		}
	}
}
