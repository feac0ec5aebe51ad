// SPDX-License-Identifier: MIT

package watch

import (
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/uring"
)

// taskBatch is how much task work kernels since 6.13 do in one enter at least.
// They do as much as completions are asked for, if that is more: the ring holds
// places of the CQ for that, see [uring.Ring.Hold].
const taskBatch = 20

// few is how many completions are no crowd: after them the next wait looks, before
// it sleeps, only if the last look found something. A look that finds nothing is
// a call in vain, which servers with few connections would make all the time.
const few = 4

// wait submits what prepare showed and waits in the same call. While events
// come in crowds it first looks without telling the scheduler, which costs less
// when something is there.
func (b *ringBackend) wait(timeout time.Duration) error {
	if b.stray || b.behind || b.waiting() > 0 {
		timeout = 0 // there is work for the next turn
	}
	hot := len(b.hot.fds)
	asked := hot > 0 && b.shown == 0 && timeout != 0 && !b.pending()
	if asked && b.hot.ask() > 0 {
		return nil // there is nothing else to report
	}
	if timeout == 0 || b.busy || hot > 0 {
		if err := b.look(); err != nil {
			return err
		}
		b.lucky = b.waiting() > 0
		if hot > 0 && (!asked || b.waiting() > 0) && b.hot.ask() > 0 {
			return nil
		}
		if timeout == 0 || b.over() || b.hot.disarmed > 0 {
			return nil // what is disarmed is armed again first
		}
		b.hot.quiet = hot > 0
	}
	return b.sleep(timeout)
}

// pending reports whether the kernel has completions, or work that leads to some.
func (b *ringBackend) pending() bool {
	return b.ring.SQFlags()&(uring.SQTaskrun|uring.SQCQOverflow) != 0
}

// look submits and fetches completions without waiting for any, in as many calls
// as it takes.
func (b *ringBackend) look() error {
	for {
		before := b.waiting()
		most := max(taskBatch, b.ring.Held())
		err := b.enter(uring.WaitOptions{Brief: true})
		now := b.waiting()
		if err != nil || b.stray || now-before < most || now >= b.w.opts.batch() {
			return err // that was all, or enough
		}
	}
}

// sleep submits and waits for completions.
func (b *ringBackend) sleep(timeout time.Duration) error {
	var end time.Time
	if timeout > 0 {
		end = time.Now().Add(timeout)
	}
	for {
		err := b.enter(uring.WaitOptions{Count: 1, Timeout: max(timeout, 0)})
		if err != nil || b.over() {
			return err
		}
		if timeout > 0 { // it is over, or a signal has come
			if timeout = time.Until(end); timeout <= 0 {
				return nil
			}
		}
	}
}

// over says whether waiting on makes no sense.
func (b *ringBackend) over() bool { return b.stray || b.waiting() > 0 }

// enter submits what was shown and waits as o says.
func (b *ringBackend) enter(o uring.WaitOptions) error {
	o.NoSubmit, o.Published = true, b.shown
	before := b.ring.Ready()
	n, err := b.ring.Wait(o)
	b.shown -= n
	if b.turner != nil {
		b.turner.brought(before, b.ring.Ready())
	}
	switch {
	case err == nil:
		return nil
	case strays(err):
		b.stray = true
		return nil
	case ringloop.Temporary(err):
		b.behind = true
		return nil
	}
	return err
}

// waiting returns how many completions wait to be taken up.
func (b *ringBackend) waiting() int {
	n := b.ring.Ready()
	if b.turner != nil {
		n += len(b.turner.ready)
	}
	return n
}

// take takes completions that wait, no more than there are.
func (b *ringBackend) take(dst []uring.CQE) int {
	if b.turner == nil {
		return b.ring.Reap(dst)
	}
	b.turner.fetch(b.ring)
	return b.turner.take(dst)
}

// collect reaps a batch. What waits beyond the CQ comes with the next wait.
func (b *ringBackend) collect() {
	if b.hot.quiet { // what has come since then is new
		b.hot.settle(b.t, len(b.hot.fds))
		b.hot.quiet, b.hot.asked = false, 0
	}
	left := b.w.opts.batch()
	seen := b.hot.report(b.t, max(left/2, left-b.waiting()))
	left -= len(b.t.found)
	total := 0
	for left > 0 {
		n := min(b.waiting(), len(b.cqes), left)
		if n == 0 {
			break
		}
		n = b.take(b.cqes[:n])
		for i := range b.cqes[:n] {
			b.complete(&b.cqes[i])
		}
		left -= n
		total += n
	}
	b.hot.settle(b.t, seen)
	b.disarmLasting()
	b.busy = total > few || total > 1 && b.lucky
}

// complete takes one completion up.
func (b *ringBackend) complete(c *uring.CQE) {
	ud := c.UserData
	fd, gen := int32(uint32(ud)), uint32(ud>>32)
	if fd < 0 {
		b.control(c)
		return
	}
	t := b.t
	if int(fd) >= len(t.entries) {
		return
	}
	e := &t.entries[fd]
	if e.gen != gen || !e.on || e.gone {
		return // removed, or armed anew
	}
	more := c.Has(uring.CQEMore)
	e.armed = more
	if c.Res < 0 {
		b.refused(fd, e, c.Errno())
		return
	}
	found := Events(c.Res) & e.asked()
	switch {
	case e.spent:
		return
	case found == 0:
		b.unasked(fd, e)
		return
	case e.mode != OneShot && !more:
		t.change(fd, e) // a full CQ ends a multishot poll
	case e.mode == OneShot && more:
		e.muted = false
		t.change(fd, e)
	}
	if e.hot {
		return // poll(2) has answered after this
	}
	t.note(fd, e, found)
}

// refused goes on after a poll that ended without an event. A closed file is
// not watched any more; others are armed again: the thread that had armed them
// may have exited, or the kernel lacked memory.
func (b *ringBackend) refused(fd int32, e *entry, errno syscall.Errno) {
	if errno != syscall.EBADF && !e.armed {
		b.t.change(fd, e)
	}
}

// unasked goes on after a report of what nobody asked for: the kernel always
// adds POLLRDHUP. As that lasts, a one-shot poll would report it again at once:
// a multishot one waits until something else comes.
func (b *ringBackend) unasked(fd int32, e *entry) {
	if e.armed {
		return
	}
	e.muted = e.mode == OneShot
	b.t.change(fd, e)
}

// control takes up what is not an event: the bell, and changes that failed.
func (b *ringBackend) control(c *uring.CQE) {
	switch c.UserData {
	case udBell:
		b.bellArmed = c.Has(uring.CQEMore)
		return
	case udNobody:
		return
	}
	ud := c.UserData &^ udControl
	fd, gen := int32(uint32(ud)), uint32(ud>>32)
	if int(fd) >= len(b.t.entries) {
		return
	}
	e := &b.t.entries[fd]
	if e.gen != gen || !e.on {
		return
	}
	if e.armed {
		// EALREADY: it was just looking whether there is something to report, and
		// may go on to wait for what was asked before. After anything else, too,
		// it may wait for that.
		b.cancels = append(b.cancels, ud)
		e.armed = false
		e.turn()
	}
	b.t.change(fd, e)
}
