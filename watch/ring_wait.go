// SPDX-License-Identifier: MIT

package watch

import (
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// taskBatch is how much task work kernels since 6.13 do in one enter at least.
// They do as much as completions are asked for, if that is more: the ring holds
// places of the CQ for that, see [uring.Ring.DeferCQHead].
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
			return nil // disarmed descriptors are armed again first
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
		most := max(taskBatch, b.ring.DeferredCQHead())
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

// over reports whether waiting on makes no sense.
func (b *ringBackend) over() bool { return b.stray || b.waiting() > 0 }

// enter submits what was shown and waits according to o.
func (b *ringBackend) enter(o uring.WaitOptions) error {
	o.NoSubmit, o.Published = true, b.shown
	before := b.ring.Ready()
	n, err := b.ring.Wait(o)
	b.w.count.enters.Add(1)
	b.shown -= n
	if b.reorder != nil {
		b.reorder.brought(before, b.ring.Ready())
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
	if b.reorder != nil {
		n += len(b.reorder.ready)
	}
	return n
}

// take takes completions that wait, no more than there are.
func (b *ringBackend) take(dst []uring.CQE) int {
	if b.reorder == nil {
		return b.ring.Reap(dst)
	}
	b.reorder.fetch(b.ring)
	return b.reorder.take(dst)
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
		b.unrequested(fd, e)
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

// unrequested handles a report without a requested event: the kernel always adds
// POLLRDHUP. As that state lasts, a new one-shot poll would report it again at once,
// so a multishot one is armed, which reports only the next change.
func (b *ringBackend) unrequested(fd int32, e *entry) {
	if e.armed {
		return
	}
	e.muted = e.mode == OneShot
	b.t.change(fd, e)
}

// control handles completions that are not events: wakeups, and changes that failed.
func (b *ringBackend) control(c *uring.CQE) {
	switch c.UserData {
	case udWakeup:
		b.wakeupArmed = c.Has(uring.CQEMore)
		return
	case udIgnored:
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

// recheckList is the descriptors of Level whose state was reported in the last turn
// and may last. Their polls, which are multishot, tell about what is new only,
// so poll(2) is asked about the rest: one call for all of them costs less than
// arming each again. Its answer is newer than the completions before it, and
// replaces them: so Level does not report what the caller has served meanwhile.
//
// A descriptor that stays ready for lastingTurns is disarmed, and poll(2) alone
// answers for it until it is not ready: otherwise its own wake-ups would look like
// events of others, and every turn would enter the ring as well.
//
// The turn's goroutine owns the list.
type recheckList struct {
	fds      []sys.PollFD
	gens     []uint32
	asked    int     // how many of them poll(2) has answered for
	quiet    bool    // none was ready when the wait began to sleep
	disarmed int     // how many of them have no poll with the kernel
	lasting  []int32 // to be disarmed
}

// lastingTurns is how many turns in a row a descriptor has to be ready for its
// poll to be disarmed, which takes two entries of the ring.
const lastingTurns = 8

// take takes over what was served.
func (h *recheckList) take(t *table) {
	for _, fd := range t.served {
		if e := t.at(int(fd)); e != nil && e.mode == Level && !e.hot {
			e.hot = true
			if !e.armed {
				h.disarmed++
			}
			h.fds = append(h.fds, sys.PollFD{Fd: fd, Events: int16(e.interest)})
			h.gens = append(h.gens, e.gen)
		}
	}
	t.served = t.served[:0]
}

// ask asks about all that are listed and returns how many are ready.
func (h *recheckList) ask() int {
	if len(h.fds) == 0 {
		return 0
	}
	n, errno := sys.PollNow(h.fds)
	if errno != 0 { // no memory, or a signal: the next turn asks again
		h.asked = 0
		return 1
	}
	h.asked = len(h.fds)
	return n
}

// report reports up to most of those that are ready, and returns how many it has
// gone through for that, which settle then forgets.
func (h *recheckList) report(t *table, most int) int {
	seen := 0
	for n := 0; seen < h.asked && n < most; seen++ {
		found := Events(uint16(h.fds[seen].Revents))
		if found == 0 {
			continue
		}
		n++
		fd := h.fds[seen].Fd
		e := t.report(fd, h.gens[seen], found)
		switch {
		case e == nil:
		case found&notOpen != 0 || e.recheck() && moved(fd, e):
			e.gone, e.found = true, 0
		case !e.armed:
		case e.streak < lastingTurns:
			e.streak++
		default:
			h.lasting = append(h.lasting, fd)
		}
	}
	h.asked = 0
	return seen
}

// notOpen is what poll(2) answers for a number that is not open (POLLNVAL).
const notOpen Events = 0x020

// settle forgets the first n. Their completions count again: those that are not
// ready any more are armed where they are not.
func (h *recheckList) settle(t *table, n int) {
	if n == 0 {
		return
	}
	for i, fd := range h.fds[:n] {
		e := t.at(int(fd.Fd))
		if e == nil || e.gen != h.gens[i] {
			continue
		}
		e.hot = false
		if e.found != 0 || e.gone {
			continue
		}
		e.streak = 0
		if e.armed || e.queued {
			continue
		}
		if moved(fd.Fd, e) {
			e.gone = true
		} else {
			t.change(fd.Fd, e)
		}
	}
	h.fds = append(h.fds[:0], h.fds[n:]...)
	h.gens = append(h.gens[:0], h.gens[n:]...)
	h.disarmed = 0
	for _, fd := range h.fds {
		if e := t.at(int(fd.Fd)); e != nil && !e.armed {
			h.disarmed++
		}
	}
}

// disarmLasting ends the polls of descriptors that stay ready.
func (b *ringBackend) disarmLasting() {
	for _, fd := range b.hot.lasting {
		if e := b.t.at(int(fd)); e != nil && e.armed {
			b.cancels = append(b.cancels, userData(fd, e.gen))
			e.armed = false
			e.turn()
		}
	}
	b.hot.lasting = b.hot.lasting[:0]
}

// clear empties the list of a ring that is gone, whose entries have all turned.
func (h *recheckList) clear() { *h = recheckList{fds: h.fds[:0], gens: h.gens[:0]} }

// moved reports whether the number of a registration means another file by now,
// or none: poll(2) answers for that one. Files without an inode of their own are
// not told apart.
func moved(fd int32, e *entry) bool {
	_, id, errno := sys.FileMode(int(fd))
	return errno != 0 || id != e.file
}

// newestFirst reports whether one enter completes deferred task work in the reverse
// of the order in which it arose, as Linux 6.1 does and 6.12 does not. The
// suite's Order/Arrival fails there without this.
var newestFirst = sync.OnceValue(func() bool {
	runtime.LockOSThread() // to which the ring belongs
	defer runtime.UnlockOSThread()
	r, err := openRing(false, false)
	if err != nil {
		return false
	}
	defer r.Close()
	var wakeups []*sys.FD
	for i := range uint64(2) {
		wakeup, err := sys.EventFD()
		if err != nil {
			return false
		}
		defer wakeup.Close()
		wakeups = append(wakeups, wakeup)
		r.SQE().PollAdd(uring.Fd(wakeup.Int()), uring.PollEvents(Read)).SetUserData(i)
	}
	if n, err := r.Submit(); n != len(wakeups) || err != nil {
		return false
	}
	for _, wakeup := range wakeups {
		sys.Signal(wakeup)
	}
	var c [2]uring.CQE
	_, err = r.SubmitAndWaitTimeout(len(c), time.Second)
	return err == nil && r.Reap(c[:]) == len(c) && c[0].UserData == 1
})

// reorder puts completions in the order in which they arose, on kernels where
// they come in reverse. The turn's goroutine owns it.
type reorderer struct {
	// runs are numbers of completions in the CQ: what a wait has brought, or,
	// negative, what a mere submission has, which comes in order.
	runs    []int
	counted int         // completions in runs
	ready   []uring.CQE // in order, and not yet taken up
}

// brought notes that a wait has raised the number of completions in the CQ.
func (o *reorderer) brought(before, after int) {
	if before > o.counted {
		o.runs = append(o.runs, o.counted-before)
	}
	if after > before {
		o.runs = append(o.runs, after-before)
	}
	o.counted = after
}

// fetch reaps all that is in the CQ and turns it.
func (o *reorderer) fetch(r *uring.Ring) {
	o.brought(r.Ready(), r.Ready())
	for _, n := range o.runs {
		from := len(o.ready)
		o.ready = slices.Grow(o.ready, max(n, -n))[:from+max(n, -n)]
		r.Reap(o.ready[from:])
		if n > 0 {
			slices.Reverse(o.ready[from:])
		}
	}
	o.runs, o.counted = o.runs[:0], 0
}

// take moves completions to dst.
func (o *reorderer) take(dst []uring.CQE) int {
	n := copy(dst, o.ready)
	o.ready = slices.Delete(o.ready, 0, n)
	return n
}
