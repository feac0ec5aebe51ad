// SPDX-License-Identifier: MIT

package watch

import (
	"syscall"
	"time"

	"github.com/ringside-io/ringside/uring"
)

// wait submits what prepare showed and waits in the same call. While events
// come in crowds it first looks without telling the scheduler, which costs less
// when something is there.
func (b *ringBackend) wait(timeout time.Duration) error {
	if b.stray || b.behind || b.ring.Ready() > 0 {
		timeout = 0 // there is work for the next turn
	}
	if timeout == 0 || b.busy {
		if err := b.enter(uring.WaitOptions{Brief: true}); err != nil || timeout == 0 || b.over() {
			return err
		}
	}
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
func (b *ringBackend) over() bool { return b.stray || b.ring.Ready() > 0 }

// enter submits what was shown and waits as o says.
func (b *ringBackend) enter(o uring.WaitOptions) error {
	o.NoSubmit, o.Published = true, b.shown
	n, err := b.ring.Wait(o)
	b.shown -= n
	switch {
	case err == nil:
		return nil
	case strays(err):
		b.stray = true
		return nil
	case passing(err):
		b.behind = true
		return nil
	}
	return err
}

// collect reaps a batch. What waits beyond the CQ comes with the next wait.
func (b *ringBackend) collect() {
	left := b.w.opts.batch()
	total := 0
	for left > 0 {
		n := min(b.ring.Ready(), len(b.cqes), left)
		if n == 0 {
			break
		}
		n = b.ring.Reap(b.cqes[:n])
		for i := range b.cqes[:n] {
			b.complete(&b.cqes[i])
		}
		left -= n
		total += n
	}
	b.busy = total > 1
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
	if e.gen != gen || !e.on {
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
	case e.mode == Edge && !more:
		t.change(fd, e) // a full CQ ends a multishot poll
	case e.mode != Edge && more:
		e.muted = false
		t.change(fd, e)
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
	e.muted = e.mode != Edge
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
	switch c.Errno() {
	case syscall.EALREADY: // it was just reporting, and a multishot poll goes on as it was
		if e.armed && e.multi {
			b.cancels = append(b.cancels, ud)
			e.armed = false
			e.turn()
			b.t.change(fd, e)
		}
	default: // it had ended
		if !e.armed {
			b.t.change(fd, e)
		}
	}
}
