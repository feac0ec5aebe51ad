// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// States of a loop.
const (
	running int32 = iota
	parked
)

const (
	sqEntries = 512
	cqEntries = 4096
	fewestCQ  = 128 // where memory is short
	reapBatch = 256
	// reserve is how many entries looking at one connection may take.
	reserve = 4
	// rawBytes is how much the kernel may copy during a call of which the
	// scheduler does not know.
	rawBytes = 512 << 10
	// peekFrom is how many completions make a load.
	peekFrom = 4
	// retryPause is when what the kernel refused for want of memory is tried
	// again.
	retryPause = time.Millisecond
)

// ringLoop drives a loop by one ring. Its goroutine sleeps in Go's netpoller on
// the ring's descriptor and is not bound to a thread, or, with WaitThread,
// in the kernel on a thread of its own.
type ringLoop struct {
	loop
	ring   *uring.Ring
	bufs   *uring.BufRing
	slab   *sys.Region      // the buffers
	poller *ringloop.Poller // of the ring's descriptor
	bell   *sys.FD          // with WaitThread, in the place of poller: an eventfd, never read

	state atomic.Int32 // running or parked

	alarm  time.Time // what the poller's deadline is set to
	tid    int
	recent int  // completions in the last batch
	bytes  int  // that the pending entries let the kernel copy
	dirty  bool // buffers were recycled and not published
	cqes   [reapBatch]uring.CQE
	// Of cqes, how many there are, and how many have been handled.
	reaped, nextCQE int
}

// run implements driver.
func (l *ringLoop) run() {
	if l.bell != nil {
		l.runOnThread()
		return
	}
	for {
		err := l.poller.Wait(l.ready)
		if l.over {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			l.doom(err)
			break
		}
		// A timer, or a knock. A late knock costs a turn.
		l.alarm = time.Time{}
		_ = l.poller.SetDeadline(l.alarm)
	}
	l.close()
}

// ready runs turns until there is nothing to do. It is called when the ring's
// descriptor is readable, and says whether the loop is over.
func (l *ringLoop) ready(uintptr) bool {
	l.state.Store(running)
	for {
		busy := l.turn()
		switch {
		case l.over:
			return true
		case busy || l.peek() || l.spin():
		case l.park():
			return false
		}
	}
}

// turn does everything that can be done now and says whether there was
// anything.
func (l *ringLoop) turn() bool {
	l.tid = syscall.Gettid()
	busy := l.reap()
	busy = l.readMail() || busy
	busy = l.fireTimers() || busy
	busy = l.lookAgain() || busy
	if l.finished() {
		return true
	}
	return l.submit() || busy
}

// reap handles one batch of completions.
func (l *ringLoop) reap() bool {
	if l.nextCQE == l.reaped { // else a callback has exited
		l.reaped, l.nextCQE = l.ring.Reap(l.cqes[:l.reapable()]), 0
		if l.reaped == 0 {
			return false
		}
		l.recent = l.reaped
		l.count.completions.Add(uint64(l.reaped))
	}
	for l.nextCQE < l.reaped {
		l.nextCQE++
		l.complete(l.cqes[l.nextCQE-1])
	}
	return true
}

// reapable is how many completions to reap. A loop with a thread takes what is there:
// more comes when it enters the kernel next.
func (l *ringLoop) reapable() int {
	if l.bell == nil {
		return reapBatch
	}
	return min(l.ring.Ready(), reapBatch)
}

// submit gives the kernel what is pending. Sending may copy a lot: then the
// scheduler is told.
func (l *ringLoop) submit() bool {
	if l.dirty {
		l.bufs.Publish()
		l.dirty = false
	}
	if l.ring.Pending() == 0 {
		return false
	}
	var n int
	var err error
	if l.bytes > rawBytes {
		n, err = l.ring.Submit()
	} else {
		n, err = l.ring.SubmitNoWait()
	}
	l.count.enters.Add(1)
	switch {
	case err == nil:
		l.bytes = 0
		return n > 0
	case ringloop.Temporary(err):
		l.retryAt = time.Now().Add(retryPause)
		return l.ring.Ready() > 0
	}
	l.doom(err)
	return true
}

// peek looks once more before the loop sleeps, and says whether there is work.
// Under load something has usually arrived since the last entry into the kernel,
// and entering again costs less than to sleep and be woken.
func (l *ringLoop) peek() bool {
	if l.recent < peekFrom || l.server.opts.SQPoll {
		return false
	}
	l.recent = 0
	_, _ = l.ring.Wait(uring.WaitOptions{Brief: true}) // submit meets the error, if it lasts
	l.count.enters.Add(1)
	return l.ring.Ready() > 0
}

// spin looks for completions for a while, if that was asked for, and says
// whether there is work.
func (l *ringLoop) spin() bool {
	d := l.server.opts.Spin
	if d == 0 {
		return false
	}
	for begin := time.Now(); time.Since(begin) < d; {
		if l.ring.Ready() > 0 || l.ring.SQFlags()&uring.SQTaskrun != 0 || l.mail.Load() {
			return true
		}
	}
	return false
}

// park prepares to sleep, until the earliest timer or a knock. It says false
// when there is work after all.
func (l *ringLoop) park() bool {
	l.setAlarm(l.nextTimer())
	l.state.Store(parked)
	// Whoever leaves mail from here on knocks.
	if l.mail.Load() || l.ring.Ready() > 0 {
		l.state.Store(running)
		return false
	}
	l.count.sleeps.Add(1)
	return true
}

// setAlarm sets the deadline that ends a sleep.
func (l *ringLoop) setAlarm(at time.Time) {
	if !at.Equal(l.alarm) {
		l.alarm = at
		_ = l.poller.SetDeadline(at) // It fails on a closed file only.
	}
}

// idle implements driver: a Write goes out at once while the loop sleeps.
func (l *ringLoop) idle() bool { return l.state.Load() == parked }

// wake implements driver: a deadline in the past ends a sleep, without a system
// call, or else the bell.
func (l *ringLoop) wake() {
	if l.state.Load() != parked || !l.state.CompareAndSwap(parked, running) {
		return
	}
	if l.bell != nil {
		sys.Signal(l.bell)
	} else {
		_ = l.poller.SetDeadline(past) // It fails when the loop is over.
	}
}

// end implements driver: it cancels what the connection has in flight.
func (l *ringLoop) end(c *Conn) bool {
	k := &c.link
	if !k.armed && !c.out.busy {
		return true
	}
	if !k.ending {
		k.ending = true
		l.sqe().CancelFD(uring.Fd(k.fd), uring.CancelAll).SetUserData(k.tag(kindCancelAll))
	}
	return false
}

// forget implements driver. The kernel knows nothing of the connection any more.
func (l *ringLoop) forget(*Conn) {}

// close ends the loop. The kernel may have operations of a broken ring in flight,
// which it cancels some time after the ring is closed, so their memory stays for
// ever. Otherwise nothing is in flight but cancellations and the poll of the bell,
// which use no memory.
func (l *ringLoop) close() {
	if l.broken != nil {
		ringloop.Leak(l)
		l.bury()
		l.refuse()
		_ = l.closeRing()
		return
	}
	_ = l.undo()
}

// refuse closes connections that a broken ring has accepted and nobody was told
// of.
func (l *ringLoop) refuse() {
	for l.ring.Ready() > 0 {
		n := l.ring.Reap(l.cqes[:min(l.ring.Ready(), reapBatch)])
		for _, e := range l.cqes[:n] {
			if e.UserData>>kindShift == kindAccept && e.Res >= 0 {
				_ = syscall.Close(int(e.Res))
			}
		}
	}
}
