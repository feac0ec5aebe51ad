// SPDX-License-Identifier: MIT

package watch_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/testing/faultsweep"
	"github.com/ringside-io/ringside/watch"
)

// sweptChanges changes the events of descriptors while they are watched: the write ends of
// the pipes are writable, which was not requested.
func sweptChanges(o watch.Options) func(*faultsweep.Trial) {
	modes := []watch.Trigger{watch.Level, watch.Edge, watch.OneShot}
	return onPipes(o, len(modes), func(t *faultsweep.Trial, w *watch.Watcher, p sweptPipes) {
		defer func() {
			if err := w.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
		want, seen := 0, 0
		f := func(ev watch.Event) {
			if ev.Events&watch.Write != 0 {
				seen |= 1 << ev.Value.(int)
			}
		}
		for i, mode := range modes {
			if t.Judge("Add", w.Add(p[i][1], watch.Read, mode, i)) {
				want |= 1 << i
			}
		}
		once := false
		if !turns(t, w, f, "a turn", func() bool { defer w.Wake(); defer func() { once = true }(); return once }) {
			return
		}
		if seen != 0 {
			t.Errorf("got events %b that were not requested", seen)
		}
		for i, mode := range modes {
			if want&(1<<i) != 0 {
				t.Judge("Modify", w.Modify(p[i][1], watch.Write, mode, i))
			}
		}
		turns(t, w, f, "the changed descriptors are reported", func() bool { return seen&want == want })
	})
}

// sweptSteps runs a loop in which each callback causes the next: a timer that was set
// again, a descriptor that is changed and removed, an idle hook, a signal, and the end of
// Run because nothing is left to do.
func sweptSteps(o watch.Options) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		p := newSweptPipes(t, 1)
		defer p.close()
		t.Arm()
		defer t.Disarm()
		l, err := watch.NewLoop(o)
		if !t.Judge("NewLoop", err) {
			return
		}
		defer func() {
			if err := l.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
		fd, reads, idle, signalled, over := p[0][0], 0, 0, false, false
		var second *watch.Timer
		// The later of the signal and the third call of the idle hook sets the timer that
		// ends the loop.
		proceed := func() {
			if signalled && idle == 3 {
				second.Reset(time.Millisecond)
			}
		}
		never := l.NewTimer(func() { t.Errorf("a timer that was stopped has fired") })
		never.Reset(time.Hour)
		hook := l.OnIdle(func() bool {
			if idle < 3 {
				idle++
				proceed()
			}
			return idle < 3
		})
		signals := l.OnSignal(syscall.SIGUSR2, func() { signalled = true; proceed() })
		second = l.NewTimer(func() {
			over = true
			if !never.Active() || !never.Stop() {
				t.Errorf("the timer that never fires was not set")
			}
			signals.Remove()
			hook.Remove()
			l.Drain()
		})
		read := func(watch.Events) {
			if drain(fd) == 0 {
				return
			}
			switch reads++; reads {
			case 1: // again, after the descriptor was changed
				t.Judge("Modify", l.Modify(fd, watch.Read, watch.OneShot))
				p.feed(t)
			case 2:
				if err := l.Remove(fd); err != nil {
					t.Errorf("Remove: %v", err)
				}
				_ = syscall.Kill(os.Getpid(), syscall.SIGUSR2)
			}
		}
		if !t.Judge("Add", l.Add(fd, watch.Read, watch.Level, read)) {
			signals.Remove()
			return
		}
		p.feed(t)
		ctx, cancel := context.WithTimeout(context.Background(), faultsweep.Patience/2)
		defer cancel()
		for failures := 0; !over && failures < 4; failures++ {
			err := l.Run(ctx)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Run does not end: %d reads, %d idle", reads, idle)
				return
			}
			if !t.Judge("Run", err) {
				continue // the error names how to continue
			}
			if !over || reads != 2 || idle < 3 || l.Len() != 0 {
				t.Errorf("the loop ended with %v, %d, %d, %d", over, reads, idle, l.Len())
			}
			break
		}
	}
}
