// SPDX-License-Identifier: MIT

package watch

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// taskBatch is the task work that kernels since 6.13 run in one enter at least. They run as
// much as the number of completions that the enter waits for, if that is more: see
// [uring.Ring.DeferCQHead].
const taskBatch = 20

// After a turn with at most few completions, the next wait checks for completions before
// it sleeps only if the last check found some. A check that finds nothing is a wasted
// system call, which servers with few connections would make in every turn.
const few = 4

// User data is the descriptor in the lower 31 bits and the generation in the
// upper 32. The bit between marks completions that are not events.
const (
	udControl = uint64(1) << 31
	udWakeup  = udControl | 0x7fffffff
	udIgnored = udControl | 0x7ffffffe // its completion means nothing
)

func userData(fd int32, gen uint32) uint64 { return uint64(uint32(fd)) | uint64(gen)<<32 }

// wait submits the SQEs that prepare has shown and waits in the same call. After turns
// with many events it first checks by a raw system call, which costs less when completions
// are there.
func (b *ringBackend) wait(timeout time.Duration) error {
	if b.unusable || b.behind || b.waiting() > 0 {
		timeout = 0 // there is work for the next turn
	}
	listed := len(b.recheck.fds)
	asked := listed > 0 && b.shown == 0 && timeout != 0 && !b.pending()
	if asked && b.recheck.ask() > 0 {
		return nil // there is nothing else to report
	}
	if timeout == 0 || b.busy || listed > 0 {
		if err := b.look(); err != nil {
			return err
		}
		b.lookFound = b.waiting() > 0
		if listed > 0 && (!asked || b.waiting() > 0) && b.recheck.ask() > 0 {
			return nil
		}
		if timeout == 0 || b.over() || b.recheck.disarmed > 0 {
			return nil // disarmed descriptors are armed again first
		}
		b.recheck.quiet = listed > 0
	}
	return b.sleep(timeout)
}

// pending reports whether the kernel has completions, or work that leads to some.
func (b *ringBackend) pending() bool {
	return b.ring.SQFlags()&(uring.SQTaskrun|uring.SQCQOverflow) != 0
}

// look submits and fetches completions without waiting, with as many system calls as that
// needs.
func (b *ringBackend) look() error {
	for {
		before := b.waiting()
		most := max(taskBatch, b.ring.DeferredCQHead())
		err := b.enter(uring.WaitOptions{Brief: true})
		now := b.waiting()
		if err != nil || b.unusable || now-before < most || now >= b.w.opts.Batch {
			return err // all were fetched, or enough for a turn
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

// over reports whether the wait is to end. If the kernel does not take SQEs for now, it has not
// waited, and has not seen a wakeup: the next turn submits them again.
func (b *ringBackend) over() bool { return b.unusable || b.behind || b.waiting() > 0 }

// enter submits the shown SQEs and waits as o specifies.
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
	case ringUnusable(err):
		b.unusable = true
		return nil
	case ringloop.Temporary(err):
		b.behind = true
		return nil
	}
	return err
}

// waiting returns how many completions have not been processed.
func (b *ringBackend) waiting() int {
	n := b.ring.Ready()
	if b.reorder != nil {
		n += len(b.reorder.ready)
	}
	return n
}

// take reaps waiting completions.
func (b *ringBackend) take(dst []uring.CQE) int {
	if b.reorder == nil {
		return b.ring.Reap(dst)
	}
	b.reorder.fetch(b.ring)
	return b.reorder.take(dst)
}

// collect reaps a batch. Completions that did not fit into the CQ arrive with the next wait.
func (b *ringBackend) collect() {
	if b.recheck.quiet { // completions since then are new
		b.recheck.finish(b.t, len(b.recheck.fds))
		b.recheck.quiet, b.recheck.asked = false, 0
	}
	if b.recheck.failed {
		b.armListed()
	}
	left := b.w.opts.Batch
	b.roundUp = 1 - b.roundUp
	seen := b.recheck.report(b.t, max((left+b.roundUp)/2, left-b.waiting()))
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
	b.recheck.finish(b.t, seen)
	b.disarmLasting()
	b.busy = total > few || total > 1 && b.lookFound
}

// armListed arms the descriptors of the recheck list anew, which reports their present state.
// It replaces a call of poll(2) that failed. Such a call may fail in every turn: EINVAL means
// that the list is longer than RLIMIT_NOFILE, which was lowered since.
func (b *ringBackend) armListed() {
	h := &b.recheck
	for i, fd := range h.fds {
		if e := b.t.at(int(fd.Fd)); e != nil && e.gen == h.gens[i] && e.rechecked {
			b.disarm(fd.Fd, e)
			h.gens[i] = e.gen
		}
	}
	h.finish(b.t, len(h.fds))
	h.failed, h.asked = false, 0
}

// disarm ends the poll of a descriptor, if it has one. Later reports of it are stale.
func (b *ringBackend) disarm(fd int32, e *entry) {
	if e.armed {
		b.cancels = append(b.cancels, userData(fd, e.gen))
		e.armed = false
		e.turn()
	}
}

// complete processes one completion.
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
	if found&Priority != 0 && !urgent(fd) {
		found &^= Priority
	}
	switch {
	case e.spent:
		return
	case found == 0:
		b.unrequested(fd, e)
		return
	case e.mode != OneShot && !more:
		t.change(fd, e) // a full CQ ends a multishot poll
	case e.mode == OneShot && more:
		e.onceByMulti = false
		t.change(fd, e)
	}
	if e.rechecked {
		return // the result of poll(2) is newer
	}
	t.note(fd, e, found)
}

// urgent reports whether a descriptor has POLLPRI now. The arrival of ordinary data wakes a poll
// with that bit, too, and the kernel reports the bits of the wakeup. If the call fails, the
// report counts.
func urgent(fd int32) bool {
	state := []sys.PollFD{{Fd: fd, Events: int16(Priority)}}
	_, errno := sys.PollNow(state)
	return errno != 0 || Events(uint16(state[0].Revents))&(Priority|notOpen) != 0
}

// refused handles a poll that ended without an event. A closed file is not watched any
// more. Others are armed again: the thread that had armed them may have exited, or the
// kernel may have lacked memory.
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
	e.onceByMulti = e.mode == OneShot
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
	// EALREADY: the poll was just checking for events, and may go on with its old mask.
	// After other errors it may do so, too.
	b.disarm(fd, e)
	b.t.change(fd, e)
}

// recheckList lists the Level descriptors whose state was reported in the last turn and
// may last. Their polls are multishot and report new events only. poll(2) reports the
// lasting states: one call for all descriptors costs less than arming each of them
// again. Its result is newer than earlier completions and replaces them, so Level does
// not report input that the caller has read meanwhile.
//
// The poll of a descriptor that stays ready for lastingTurns is cancelled, and poll(2)
// alone reports it until it is not ready. Otherwise its wakeups would look like events of
// other descriptors, and every turn would enter the ring as well.
//
// The turn's goroutine owns the list.
type recheckList struct {
	fds      []sys.PollFD
	gens     []uint32
	asked    int     // how many of them poll(2) has checked
	failed   bool    // poll(2) has failed
	quiet    bool    // none was ready when the wait began to sleep
	disarmed int     // how many of them have no poll with the kernel
	lasting  []int32 // to be disarmed
}

// lastingTurns is how many turns in a row a descriptor has to be ready for its
// poll to be disarmed, which takes two entries of the ring.
const lastingTurns = 8

// take adds the descriptors that the last Dispatch reported.
func (h *recheckList) take(t *table) {
	for _, fd := range t.served {
		if e := t.at(int(fd)); e != nil && e.mode == Level && !e.rechecked {
			e.rechecked = true
			if !e.armed {
				h.disarmed++
			}
			h.fds = append(h.fds, sys.PollFD{Fd: fd, Events: int16(e.interest)})
			h.gens = append(h.gens, e.gen)
		}
	}
	t.served = t.served[:0]
}

// ask calls poll(2) for all listed descriptors and returns how many are ready, or 1 if the
// call failed.
func (h *recheckList) ask() int {
	if len(h.fds) == 0 {
		return 0
	}
	n, errno := sys.PollNow(h.fds)
	if h.failed = errno != 0; h.failed {
		return 1
	}
	h.asked = len(h.fds)
	return n
}

// report reports up to most ready descriptors. It returns how many entries of the list it
// has processed, which finish then removes.
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

// notOpen is the result of poll(2) for a number that is not open (POLLNVAL).
const notOpen Events = 0x020

// finish removes the first n entries. Completions of these descriptors count again, and
// descriptors that are not ready any more are armed.
func (h *recheckList) finish(t *table, n int) {
	if n == 0 {
		return
	}
	for i, fd := range h.fds[:n] {
		e := t.at(int(fd.Fd))
		if e == nil || e.gen != h.gens[i] {
			continue
		}
		e.rechecked = false
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
	for _, fd := range b.recheck.lasting {
		if e := b.t.at(int(fd)); e != nil {
			b.disarm(fd, e)
		}
	}
	b.recheck.lasting = b.recheck.lasting[:0]
}

// clear empties the list after its ring was closed. All entries have a new generation.
func (h *recheckList) clear() { *h = recheckList{fds: h.fds[:0], gens: h.gens[:0]} }

// moved reports whether the number of a registration now names another file, or none:
// poll(2) would check that file. Files that share an inode cannot be distinguished.
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

// reorderer puts completions in the order in which they arose, on kernels where
// they come in reverse. The turn's goroutine owns it.
type reorderer struct {
	// runs are numbers of completions in the CQ. A positive number counts the
	// completions of a wait. A negative number counts the completions of a submission
	// without a wait, which are in order.
	runs    []int
	counted int         // completions in runs
	ready   []uring.CQE // in order, and not yet processed
}

// brought records by how much a wait has raised the number of completions in the CQ.
func (o *reorderer) brought(before, after int) {
	if before > o.counted {
		o.runs = append(o.runs, o.counted-before)
	}
	if after > before {
		o.runs = append(o.runs, after-before)
	}
	o.counted = after
}

// fetch reaps the CQ and reverses the completions of each wait.
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

// ringUnusable reports whether an error means that the caller's thread cannot use the
// ring: the ring belongs to another thread, or completions were lost.
func ringUnusable(err error) bool {
	return errors.Is(err, syscall.EEXIST) || errors.Is(err, sys.EBADR)
}
