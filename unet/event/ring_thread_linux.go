// SPDX-License-Identifier: MIT

package event

import (
	"runtime"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/uring"
)

// bellRings is POLLIN and EPOLLET: each signal is reported although nobody reads
// the eventfd.
const bellRings uring.PollEvents = 1 | 1<<31

// runOnThread serves on a thread of its own, for which the kernel puts off all
// work until the thread enters it.
func (l *ringLoop) runOnThread() {
	runtime.LockOSThread() // until the goroutine ends; runtime.Goexit does not end it
	if l.tid == 0 {        // else a callback has exited
		l.enable()
	}
	for !l.over {
		l.reap()
		l.readMail()
		l.fireTimers()
		l.lookAgain()
		if !l.finished() {
			l.enter()
		}
	}
	l.close()
	runtime.UnlockOSThread()
}

// enable makes the ring the thread's.
func (l *ringLoop) enable() {
	if err := l.ring.Enable(); err != nil {
		l.doom(err)
		return
	}
	_ = l.ring.RegisterRingFD() // It makes calls cheaper, and works without.
	l.tid = syscall.Gettid()
	l.armBell()
}

// armBell lets the bell end a sleep.
func (l *ringLoop) armBell() {
	e := l.sqe()
	if e == nil {
		l.post(l.armBell)
		return
	}
	e.PollMultishot(uring.Fd(l.bell.Int()), bellRings).SetUserData(tag(kindBell, noSlot, 0))
}

// enter gives the kernel what is pending and lets it do what it has put off; when
// there is nothing else to do it sleeps. Under load it looks once more before
// that: for a call that blocks the scheduler has to be told, which costs more.
func (l *ringLoop) enter() {
	if l.dirty {
		l.bufs.Publish()
		l.dirty = false
	}
	waiting := l.ring.SQFlags()&uring.SQTaskrun != 0
	if waiting || l.mail.Load() || len(l.again) > 0 || l.ring.Ready() > 0 {
		if waiting || l.ring.Pending() > 0 {
			l.call(uring.WaitOptions{Brief: l.bytes <= rawBytes})
		}
		return
	}
	if l.recent >= peekFrom || l.server.opts.Spin > 0 && l.ring.Pending() > 0 {
		l.recent = 0
		l.call(uring.WaitOptions{Brief: l.bytes <= rawBytes})
		if l.over || l.ring.Ready() > 0 {
			return
		}
	}
	if !l.spin() {
		l.sleep()
	}
}

// sleep waits for a completion, until the earliest timer or the bell.
func (l *ringLoop) sleep() {
	l.state.Store(parked)
	defer l.state.Store(running)
	if l.mail.Load() { // Whoever leaves mail from here on rings.
		return
	}
	o := uring.WaitOptions{Count: 1}
	if at := l.nextTimer(); !at.IsZero() {
		o.Timeout = max(time.Until(at), 1)
		o.NoSubmit = !l.retryAt.IsZero()
	}
	l.count.sleeps.Add(1)
	l.call(o)
}

// call enters the kernel.
func (l *ringLoop) call(o uring.WaitOptions) {
	_, err := l.ring.Wait(o)
	l.count.enters.Add(1)
	switch {
	case err == nil:
		l.bytes = 0
	case ringloop.Temporary(err):
		l.retryAt = time.Now().Add(retryPause)
	default:
		l.doom(err)
	}
}
