// SPDX-License-Identifier: MIT

package reactor

import (
	"runtime"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/uring"
)

// waker is a ring whose Enter can be ended from another thread.
type waker interface {
	// Wake makes a blocked Enter, or the next one, return.
	Wake()
	// Rearm builds the entry that completes after Wake. It is entered at the
	// beginning and after each of its completions.
	Rearm(*uring.SQE)
}

// startPinned starts the loop's thread, which opens the ring: its first caller
// becomes its only issuer.
func (l *loop) startPinned(i int, first ring) error {
	l.thread = make(chan struct{})
	opened := make(chan error)
	go func() {
		defer close(l.thread)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := l.openRing(i, first)
		l.calls.own()
		opened <- err
		if err != nil {
			return
		}
		l.ring.(waker).Rearm(&l.wakeEntry)
		l.wakeSpent = true
		l.runPinned()
		if l.failure() != nil {
			l.bury() // no completion comes without entering the kernel
		}
		l.calls.run()
		l.closed = l.closeRing()
	}()
	return <-opened
}

// runPinned submits, waits, reaps and calls back until the loop is stopped.
func (l *loop) runPinned() {
	idle := true
	for {
		l.rearmWake()
		l.mu.Lock()
		if idle && l.refused.Load() && l.failed == nil {
			l.pause()
		}
		if l.stopping || l.failed != nil {
			l.mu.Unlock()
			return
		}
		o := uring.WaitOptions{Brief: l.bytes <= rawBytes}
		if idle && len(l.backlog)+len(l.errands) == 0 && !l.calls.waiting() {
			// Whoever adds an entry from here on wakes us.
			l.asleep, o.Count = true, 1
		}
		l.enterKernel(o)
		l.asleep = false
		l.mu.Unlock()
		idle = !l.turn()
	}
}

// enterNow submits what is pending. The caller is the thread and holds mu.
func (l *loop) enterNow() { l.enterKernel(uring.WaitOptions{Brief: l.bytes <= rawBytes}) }

// pause waits for a completion, submits nothing and comes back soon: the kernel
// has refused what is pending. The caller is the thread and holds mu, which is
// let go meanwhile.
func (l *loop) pause() {
	l.mu.Unlock()
	_, err := l.ring.Enter(uring.WaitOptions{Count: 1, NoSubmit: true, Timeout: retryPause})
	l.mu.Lock()
	l.stats.enters.Add(1)
	if err != nil && !ringloop.Temporary(err) {
		l.fail(err)
	}
}

// enterKernel submits what is pending and waits as o says. The caller is the
// thread and holds mu, which is let go meanwhile.
func (l *loop) enterKernel(o uring.WaitOptions) {
	n, err := l.ring.Publish()
	if err == nil {
		o.NoSubmit, o.Published = true, n
		l.mu.Unlock()
		n, err = l.ring.Enter(o)
		l.mu.Lock()
		l.stats.enters.Add(1)
		l.taken(n)
		l.setRefused(err != nil || n < o.Published)
	}
	if err != nil && !ringloop.Temporary(err) {
		l.fail(err)
	}
}

// turn reaps and calls back; it reports whether there was anything.
func (l *loop) turn() bool {
	l.runErrands()
	worked := l.reapAll()
	l.rearmWake()
	l.runBacklog()
	return l.calls.run() || worked
}

// wakeLocked makes the thread look at the pending entries. The caller holds mu.
func (l *loop) wakeLocked() {
	if l.asleep {
		l.asleep = false
		l.ring.(waker).Wake()
	}
}

// rearmWake makes the next Wake possible. The thread calls it.
func (l *loop) rearmWake() {
	if !l.wakeSpent {
		return
	}
	l.wakeSpent = false
	l.mu.Lock()
	defer l.mu.Unlock()
	l.control(&l.wakeEntry, tagWake)
}

// stopPinned ends the thread of a loop that is shut and has no operations, give
// or take slots of those who are about to learn that it is shut.
func (l *loop) stopPinned() error {
	l.mu.Lock()
	l.stopping = true
	l.wakeLocked()
	l.mu.Unlock()
	<-l.thread
	return l.closed
}
