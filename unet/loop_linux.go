// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/internal/epoll"
	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/uring"
)

// loop drives the sockets that were given to it: one goroutine learns what is
// ready, receives for the readers that wait, and wakes them.
type loop struct {
	system *System
	table  table
	poll   *epoll.Instance // of the sockets
	spin   spinner

	// To sleep, the driver parks in Go's netpoller, so that no thread blocks.
	// The netpoller watches gate, which reports poll once for each time that
	// it was armed: watching poll itself would wake a thread of the runtime
	// with each event of a busy loop.
	gate       *epoll.Instance
	gatePoller *ringloop.Poller
	gateTry    func(fd uintptr) bool // whether something has been reported
	gateOne    [1]epoll.Event

	// woken counts the readers that have their data and do not run yet, and
	// the driver as one. Who takes it to zero lets a driver go on that waits
	// for settled.
	woken   atomic.Int32
	settled chan struct{}

	passing sync.Mutex  // held by a pass: of the driver or of a call that helps it
	driving bool        // the pass is the driver's; guarded by passing
	wanted  atomic.Bool // a call asks for a pass; see help
	starved atomic.Bool // see stoodBack
	wasLong bool        // the driver was away for long the last inARow times
	inARow  int

	useRing bool
	ring    *uring.Ring // opened when it is first of use
	batch   []receive
	cqes    []uring.CQE
	events  []epoll.Event

	stopping atomic.Bool
	done     sync.WaitGroup
}

// maxBatch is how many events are taken at once, and the size of the ring. A
// driver that takes more keeps more readers from what has come for them when
// the system takes its processor away.
const maxBatch = 32

func newLoop(s *System) (*loop, error) {
	l := &loop{system: s, useRing: s.mode == ModeRing, spin: spinner{limit: s.opts.spin()},
		events: make([]epoll.Event, maxBatch), settled: make(chan struct{}, 1)}
	l.woken.Store(1)
	l.gateTry = func(uintptr) bool {
		n, errno := l.gate.PollSockets(l.gateOne[:])
		return n > 0 || errno != 0 // it is not told again: look
	}
	if err := l.open(); err != nil {
		_ = l.free() // the first error counts
		return nil, err
	}
	l.done.Go(l.drive)
	return l, nil
}

func (l *loop) open() (err error) {
	if l.poll, err = epoll.Open(); err != nil {
		return syscallError("epoll_create1", err)
	}
	if l.gate, err = epoll.Open(); err != nil {
		return syscallError("epoll_create1", err)
	}
	if errno := l.gate.Add(l.poll.FD(), epoll.OneShot, 0); errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	if l.gatePoller, err = ringloop.NewPoller(l.gate.FD(), "epoll"); err != nil {
		return syscallError("dup", err)
	}
	return nil
}

// close stops the driver and frees everything. No socket may be left.
func (l *loop) close() error {
	l.stopping.Store(true)
	err := l.gatePoller.SetDeadline(time.Unix(1, 0)) // wakes the driver
	l.done.Wait()
	return errors.Join(err, l.free())
}

func (l *loop) free() error {
	var errs []error
	if l.ring != nil {
		errs = append(errs, l.ring.Close())
	}
	if l.gatePoller != nil {
		errs = append(errs, l.gatePoller.Close())
	}
	for _, p := range []*epoll.Instance{l.gate, l.poll} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}
