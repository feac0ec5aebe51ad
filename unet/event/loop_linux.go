// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

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

// loop is one ring with its listening socket and connections. Its goroutine
// sleeps in Go's netpoller on the ring's descriptor and is not bound to a
// thread. Fields belong to that goroutine unless they say otherwise.
type loop struct {
	server *Server
	rings  *rings
	ring   *uring.Ring
	bufs   *uring.BufRing
	file   *os.File // a duplicate of the ring's descriptor, in the netpoller
	raw    syscall.RawConn
	listen listener

	state atomic.Int32 // running or parked

	mu    sync.Mutex // guards inbox and tasks
	inbox []*Conn    // somebody changed their state
	tasks []func()
	mail  atomic.Bool // inbox or tasks hold something

	conns   []*Conn // by slot
	free    []uint32
	open    int
	gen     uint32
	spare   []*Conn // the inbox that was emptied last
	again   []*Conn // to be looked at in the next turn
	timers  timerHeap
	alarm   time.Time // what the file's deadline is set to
	retryAt time.Time // when a refused submission is tried again
	tid     int
	recent  int  // completions in the last batch
	bytes   int  // that the pending entries let the kernel copy
	dirty   bool // buffers were recycled and not published
	leaving bool
	over    bool
	broken  error  // why the ring cannot be used any more
	scratch []byte // for draining
	cqes    [reapBatch]uring.CQE

	count counters
}

// run serves until the loop is told to stop and its last connection is gone.
func (l *loop) run() {
	for {
		err := l.raw.Read(l.ready)
		if l.over {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			l.doom(err)
			break
		}
		// A timer, or a knock. A late knock costs a turn.
		l.alarm = time.Time{}
		_ = l.file.SetReadDeadline(l.alarm)
	}
	l.close()
}

// ready runs turns until there is nothing to do. It is called when the ring's
// descriptor is readable, and says whether the loop is over.
func (l *loop) ready(uintptr) bool {
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
func (l *loop) turn() bool {
	l.tid = syscall.Gettid()
	busy := l.reap()
	busy = l.readMail() || busy
	busy = l.fireTimers() || busy
	busy = l.lookAgain() || busy
	if l.leaving && l.open == 0 && l.listen.closed() {
		l.over = true
		return true
	}
	return l.submit() || busy
}

// reap handles one batch of completions.
func (l *loop) reap() bool {
	n := l.ring.Reap(l.cqes[:])
	for i := range l.cqes[:n] {
		l.complete(l.cqes[i])
	}
	if n > 0 {
		l.recent = n
		l.count.completions.Add(uint64(n))
	}
	return n > 0
}

// submit gives the kernel what is pending. Sending may copy a lot: then the
// scheduler is told.
func (l *loop) submit() bool {
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
	case passing(err):
		l.retryAt = time.Now().Add(retryPause)
		return l.ring.Ready() > 0
	}
	l.doom(err)
	return true
}

// passing says that the kernel may take entries later: it lacks memory, or room
// for completions.
func passing(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EBUSY) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EINTR)
}

// peek looks once more before the loop sleeps, and says whether there is work.
// Under load something has usually arrived since the last entry into the kernel,
// and entering again costs less than to sleep and be woken.
func (l *loop) peek() bool {
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
func (l *loop) spin() bool {
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
func (l *loop) park() bool {
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
func (l *loop) setAlarm(at time.Time) {
	if !at.Equal(l.alarm) {
		l.alarm = at
		_ = l.file.SetReadDeadline(at) // It fails on a closed file only.
	}
}
