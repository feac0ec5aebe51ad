// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
	"github.com/ringside-io/ringside/watch"
)

// States of a loop.
const (
	running int32 = iota
	sleeping
)

const (
	sqEntries = 512
	cqEntries = 4096
	fewestCQ  = 128 // if the memory limit allows no more
	reapBatch = 256
	// reserve is the largest number of SQEs that processing one connection takes.
	reserve = 4
	// peekFrom is the size of a batch after which the loop enters the kernel once
	// more before it sleeps.
	peekFrom = 4
	// fewCompletions is the size of a batch up to which responses are sent by plain
	// calls. A send through the ring saves a call only together with others, and its
	// completion costs another one.
	fewCompletions = 2
	// bulkFrom is how many full buffers in a row mark a connection as one that sends
	// much.
	bulkFrom = 4
	// A loop with a thread that has received spinFrom bytes of at most fewBulk such
	// connections looks for more for up to spinFor before it sleeps: to wake it costs the
	// sender as much time as to send 64 KiB. If the sender needs the loop's processor,
	// looking keeps it off, so each look in vain makes the loop sleep at once more often,
	// up to longestSkip times.
	spinFrom    = 32 << 10
	spinFor     = 30 * time.Microsecond
	fewBulk     = 4
	longestSkip = 64
)

// ringLoop drives a loop by one ring. Its goroutine sleeps in Go's netpoller on
// the ring's descriptor and is not bound to a thread. With a thread of its own it sleeps in
// the kernel on it (see wait).
type ringLoop struct {
	loop
	ring *uring.Ring
	bufs *uring.BufRing
	slab *sys.Region // the buffers
	// The same for datagrams, nil until there is a socket for them.
	packetBufs         *uring.BufRing
	packetSlab         *sys.Region
	unpublishedPackets bool

	poller *ringloop.Poller // of the ring's descriptor
	wakeup *sys.FD          // with a thread, instead of poller: an eventfd that is never read

	state atomic.Int32 // running or sleeping

	alarm       time.Time // the poller's deadline
	tid         int32
	workers     bool // the kernel's worker threads may send large pieces
	recent      int  // completions in the last batch
	few         bool // these were at most fewCompletions
	bulk        int  // connections that send much
	flow        int  // bytes of them that were received since the last sleep
	vain, skip  int  // how many sleeps follow a look in vain at once, and how many of them are left
	bytes       int  // to be copied by the kernel for the pending SQEs
	unpublished bool // buffers were recycled and not published
	cqes        [reapBatch]uring.CQE
	// reaped is the number of completions in cqes, nextCQE the first that was not handled.
	reaped, nextCQE int
}

// run implements driver.
func (l *ringLoop) run() {
	if l.wakeup != nil {
		l.runOnThread()
		return
	}
	for {
		err := l.poller.Wait(l.ready)
		if l.over {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			l.fail(err)
			break
		}
		// A timer, or a wakeup. A spurious wakeup costs one iteration.
		l.alarm = time.Time{}
		_ = l.poller.SetDeadline(l.alarm)
	}
	l.close()
}

// ready runs turns until there is nothing to do. It is called when the ring's
// descriptor is readable, and reports whether the loop is over.
func (l *ringLoop) ready(uintptr) bool {
	l.state.Store(running)
	for {
		busy := l.turn()
		switch {
		case l.over:
			return true
		case busy || l.peek():
		case l.park():
			return false
		}
	}
}

// turn does all pending work and reports whether there was any.
func (l *ringLoop) turn() bool {
	if l.server.traces() {
		defer region().End()
	}
	l.tid = int32(syscall.Gettid())
	busy := l.reap()
	busy = l.processInbox() || busy
	busy = l.fireTimers() || busy
	busy = l.processDirty() || busy
	if l.finished() {
		return true
	}
	return l.submit() || busy
}

// reap handles one batch of completions.
func (l *ringLoop) reap() bool {
	if l.nextCQE == l.reaped { // otherwise a callback has exited
		l.turns++
		l.reaped, l.nextCQE = l.ring.Reap(l.cqes[:l.reapable()]), 0
		if l.reaped == 0 {
			return false
		}
		l.recent = l.reaped
		l.few = l.reaped <= fewCompletions
		l.count.completions.Add(uint64(l.reaped))
	}
	for l.nextCQE < l.reaped {
		l.nextCQE++
		l.complete(l.cqes[l.nextCQE-1])
	}
	return true
}

// reapable returns how many completions to reap. A loop with a thread reaps those that
// are ready: more arrive only when it enters the kernel again.
func (l *ringLoop) reapable() int {
	if l.wakeup == nil {
		return reapBatch
	}
	return min(l.ring.Ready(), reapBatch)
}

// publish returns the buffers that were recycled to the kernel.
func (l *ringLoop) publish() {
	if l.unpublished {
		l.bufs.Publish()
		l.unpublished = false
	}
	if l.unpublishedPackets {
		l.packetBufs.Publish()
		l.unpublishedPackets = false
	}
}

// submit submits the pending SQEs. If their sends may copy much, the call goes through
// the scheduler.
func (l *ringLoop) submit() bool {
	l.publish()
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
	l.fail(err)
	return true
}

// peek enters the kernel once more before the loop sleeps, and reports whether there
// are completions. Under load some have usually arrived since the last entry, and
// another entry costs less than a sleep and a wakeup.
func (l *ringLoop) peek() bool {
	if l.recent < peekFrom {
		return false
	}
	l.recent = 0
	_, _ = l.ring.Wait(uring.WaitOptions{Brief: true}) // if the error lasts, submit gets it too
	l.count.enters.Add(1)
	return l.ring.Ready() > 0
}

// park prepares to sleep, until the earliest timer or a wakeup. It returns false if
// there is work.
func (l *ringLoop) park() bool {
	l.setAlarm(l.nextTimer())
	l.state.Store(sleeping)
	// From here on, a goroutine that adds to the inbox wakes the loop.
	if l.hasInput.Load() || l.ring.Ready() > 0 {
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
func (l *ringLoop) idle() bool { return l.state.Load() == sleeping }

// wake implements driver: a deadline in the past ends a sleep, without a system
// call, or else the wakeup eventfd.
func (l *ringLoop) wake() {
	if l.state.Load() != sleeping || !l.state.CompareAndSwap(sleeping, running) {
		return
	}
	if l.wakeup != nil {
		sys.Signal(l.wakeup)
	} else {
		_ = l.poller.SetDeadline(past) // It fails when the loop is over.
	}
}

// end implements driver: it cancels the operations that the connection has in flight.
func (l *ringLoop) end(c *Conn) bool {
	k := &c.bstate
	if !k.armed && !k.endArmed && !c.out.busy {
		return true
	}
	if !k.ending {
		k.ending = true
		l.sqe().CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(k.fd), All: true}).SetUserData(k.tag(kindCancelAll))
	}
	return false
}

// forget implements driver. The kernel has no operation of the connection left.
func (l *ringLoop) forget(c *Conn) {
	if c.bstate.bulk {
		l.bulk--
	}
}

// close ends the loop. A broken ring may have operations in flight. The kernel cancels
// them some time after the ring is closed, so their memory is never freed. Otherwise
// only cancellations and the poll of the eventfd are in flight, which use no memory.
func (l *ringLoop) close() {
	if l.broken != nil {
		ringloop.Leak(l)
		l.closeAll()
		l.closeAccepted()
		_ = l.closeRing()
		return
	}
	_ = l.undo()
}

// closeAccepted closes connections that a broken ring has accepted and that were not
// passed to the handler.
func (l *ringLoop) closeAccepted() {
	for l.ring.Ready() > 0 {
		n := l.ring.Reap(l.cqes[:min(l.ring.Ready(), reapBatch)])
		for _, e := range l.cqes[:n] {
			if e.UserData>>kindShift == kindAccept && e.Res >= 0 {
				_ = syscall.Close(int(e.Res))
			}
		}
	}
}

// start implements driver: it opens the ring, its buffers and the wakeup.
func (l *ringLoop) start() (err error) {
	o := &l.server.opts
	u := uring.Options{Entries: sqEntries, CQEntries: cqEntries, Clamp: true, SubmitAll: true, NoIOWait: true}
	u.DeferTaskrun, u.Disabled = l.server.threads, l.server.threads // its thread enables it
	u.CoopTaskrun = !l.server.threads
	if o.Restrict {
		u.Restrict = &ringRestrictions
	}
	l.ring, err = ringloop.Open(u, fewestCQ)
	if err != nil {
		return err
	}
	if l.slab, err = sys.MapAnon(o.Buffers*o.BufferSize, false); err == nil {
		l.bufs, err = l.ring.NewBufRing(uring.BufRingOptions{Entries: o.Buffers, BufferSize: o.BufferSize,
			Memory: l.slab.Bytes()[:o.Buffers*o.BufferSize]})
	}
	switch {
	case err != nil:
	case l.server.threads:
		l.wakeup, err = sys.EventFD()
	default:
		l.poller, err = ringloop.NewPoller(l.ring.FD(), "io_uring")
	}
	if err != nil {
		return errors.Join(err, l.ring.Close(), l.slab.Unmap())
	}
	l.post(l.armAccept)
	return nil
}

// undo implements driver.
func (l *ringLoop) undo() error {
	err := errors.Join(l.closeRing(), l.slab.Unmap())
	if l.packetSlab != nil {
		err = errors.Join(err, l.packetSlab.Unmap())
	}
	return err
}

// closeRing closes the ring and the wakeup. It does not free the buffers.
func (l *ringLoop) closeRing() error {
	if l.wakeup != nil {
		return errors.Join(l.ring.Close(), l.wakeup.Close())
	}
	return errors.Join(l.poller.Close(), l.ring.Close())
}

const (
	// pollIn and pollOut are POLLIN and POLLOUT.
	pollIn  uring.PollEvents = 1
	pollOut uring.PollEvents = 4
	// pollEnd is POLLRDHUP; the kernel adds POLLHUP and POLLERR.
	pollEnd uring.PollEvents = 1 << 13
)

// wakeupEvents is POLLIN and EPOLLET: each signal is reported although the eventfd is
// never read.
const wakeupEvents uring.PollEvents = 1 | 1<<31

// runOnThread serves on its own thread. The kernel defers task work until that thread
// enters it.
func (l *ringLoop) runOnThread() {
	if l.tid == 0 { // otherwise a callback has exited, and the thread is still locked
		// Lock only once: Go switches to a coroutine only if the lock's depth is the
		// same as when the coroutine started.
		runtime.LockOSThread()
		l.enable()
	}
	for !l.over {
		l.turnOnThread()
		if !l.finished() {
			l.enter()
		}
	}
	l.close()
	runtime.UnlockOSThread()
}

// turnOnThread does all pending work.
func (l *ringLoop) turnOnThread() {
	if l.server.traces() {
		defer region().End()
	}
	l.reap()
	l.processInbox()
	l.fireTimers()
	l.processDirty()
}

// enable enables the ring, which binds it to the thread.
func (l *ringLoop) enable() {
	if err := l.ring.Enable(); err != nil {
		l.fail(err)
		return
	}
	_ = l.ring.RegisterRingFD() // optional: it makes calls cheaper
	_, _, err := l.ring.SetIOWQMaxWorkers(0, runtime.GOMAXPROCS(0))
	l.workers = err == nil
	l.tid = int32(syscall.Gettid())
	l.armWakeup()
}

// armWakeup arms the poll of the eventfd, which ends a sleep.
func (l *ringLoop) armWakeup() {
	e := l.sqe()
	if e == nil {
		l.post(l.armWakeup)
		return
	}
	e.PollMultishot(uring.Fd(l.wakeup.Int()), wakeupEvents).SetUserData(tag(kindWakeup, noSlot, 0))
}

// enter submits the pending SQEs and lets the kernel run deferred task work. If there is
// no other work it sleeps. Under load it enters once more by a raw call before that: a
// call that blocks has to go through the scheduler, which costs more.
func (l *ringLoop) enter() {
	l.publish()
	waiting := l.ring.SQFlags()&uring.SQTaskrun != 0
	if waiting || l.hasInput.Load() || len(l.dirty) > 0 || l.ring.Ready() > 0 {
		if waiting || l.ring.Pending() > 0 {
			l.call(uring.WaitOptions{Brief: l.bytes <= rawBytes})
		}
		return
	}
	flows := l.flow >= spinFrom && l.bulk <= fewBulk
	if l.flow = 0; flows && l.skip > 0 {
		l.skip--
		flows = false
	}
	if l.recent >= peekFrom || flows {
		l.recent = 0
		l.call(uring.WaitOptions{Brief: l.bytes <= rawBytes})
		if l.over || l.ring.Ready() > 0 || flows && l.spin() {
			return
		}
	}
	l.sleep()
}

// spin looks for more to do for a short time, without system calls.
func (l *ringLoop) spin() bool {
	for begin := time.Now(); time.Since(begin) < spinFor; {
		if l.ring.SQFlags()&uring.SQTaskrun != 0 || l.hasInput.Load() {
			l.vain = 0
			return true
		}
	}
	l.vain = min(2*l.vain+1, longestSkip)
	l.skip = l.vain
	return false
}

// sleep waits for a completion, until the earliest timer or a wakeup.
func (l *ringLoop) sleep() {
	l.state.Store(sleeping)
	defer l.state.Store(running)
	if l.hasInput.Load() { // from here on, a goroutine that adds to the inbox signals the eventfd
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
		l.fail(err)
	}
}

// Kinds of entries, in the user data.
const (
	kindAccept = iota + 1
	kindRecv
	kindSend
	kindCancel    // of a receive, or of the accept
	kindCancelAll // of all operations of a connection
	kindWakeup
	kindPacket       // a receive of datagrams
	kindPacketPoll   // a poll for room to send them
	kindPacketCancel // of either
	kindWritable     // a socket has room for more bytes
	kindEnd          // the peer has ended its direction, or the connection is broken
)

// complete handles one completion.
func (l *ringLoop) complete(e uring.CQE) {
	switch e.UserData >> kindShift {
	case kindRecv:
		l.received(e)
	case kindSend:
		l.sent(e)
	case kindWritable:
		if c := l.find(e.UserData); c != nil {
			c.mu.Lock()
			c.out.busy = false
			c.mu.Unlock()
			l.markDirty(c)
		}
	case kindEnd:
		l.endPolled(e)
	case kindAccept:
		l.accepted(e)
	case kindWakeup:
		if !e.Has(uring.CQEMore) {
			l.armWakeup()
		}
	case kindCancel, kindCancelAll:
		l.canceled(e)
	case kindPacket, kindPacketPoll, kindPacketCancel:
		l.packetCompleted(e)
	}
}

// canceled handles the completion of a cancellation. A cancellation that found nothing,
// or came while the operation was being executed (EALREADY), is repeated after a pause
// until the operation has ended. So is one of all operations, whatever it found: the kernel
// counts an operation that a worker thread executes as found, and before Linux 6.9 does not
// find one that another thread retries at that moment. Either may wait again afterwards.
func (l *ringLoop) canceled(e uring.CQE) {
	if e.Res < 0 || e.UserData>>kindShift == kindCancelAll && l.find(e.UserData) != nil {
		l.delay(func() { l.cancelAgain(e.UserData) })
	}
}

// cancelAgain repeats a cancellation if its operation has not ended.
func (l *ringLoop) cancelAgain(userData uint64) {
	if uint32(userData) == noSlot {
		if a := &l.listen; a.armed && a.stopped {
			l.disarm()
		}
		return
	}
	if c := l.find(userData); c != nil {
		c.bstate.canceling, c.bstate.ending = false, false
		l.markDirty(c)
	}
}

// received handles a completion of a receive.
func (l *ringLoop) received(e uring.CQE) {
	c := l.find(e.UserData)
	if c != nil && c.bstate.polling {
		l.readable(c, e.Errno())
		return
	}
	data, _ := l.bufs.Take(e)
	if e.Has(uring.CQEBuffer) {
		defer l.recycle(e.BufferID(), data) // OnData may end the goroutine
	}
	if c != nil {
		l.arrived(c, e, data)
	}
}

// recycle returns a buffer to the kernel after the handler has used it.
func (l *ringLoop) recycle(id uint16, data []byte) {
	sys.Poison(data)
	l.bufs.Recycle(id)
	l.unpublished = true
}

// arrived handles a completion of a connection's receive.
func (l *ringLoop) arrived(c *Conn, e uring.CQE, data []byte) {
	k := &c.bstate
	k.nonEmpty = e.Has(uring.CQESockNonEmpty)
	if !e.Has(uring.CQEMore) {
		k.armed, k.canceling = false, false
		l.markDirty(c)
	}
	if e.Res > 0 {
		l.deliver(c, data)
		l.noteFlow(k, len(data) == l.server.opts.BufferSize)
		if k.armed && !k.canceling && (k.tid != l.tid || k.missesEnd()) {
			l.markDirty(c)
		}
		return
	}
	switch errno := e.Errno(); errno {
	case syscall.ENOBUFS:
		l.count.noBuffers.Add(1)
	case syscall.ECANCELED, syscall.EINTR, syscall.EAGAIN:
		// The loop cancelled it, or the thread that armed it has exited.
	default:
		if k.kept != nil {
			k.kept.ended, k.kept.res = true, e.Res
			return
		}
		l.receiveEnded(c, e.Res)
	}
}

// noteFlow records whether a receive could fill a buffer. After bulkFrom that did, the
// connection counts as one that sends much, until as many in a row did not: a poll then
// reports that it is readable, and plain calls receive, in larger pieces. A piece that
// follows a full buffer is its rest, and does not count.
func (l *ringLoop) noteFlow(k *backendState, full bool) {
	if l.server.opts.largest == l.server.opts.BufferSize {
		return
	}
	switch {
	case full && k.fullInRow < bulkFrom:
		k.fullInRow++
	case !full && !k.wasFull && k.fullInRow > 0:
		k.fullInRow--
	}
	k.wasFull = full
	switch {
	case !k.bulk && k.fullInRow == bulkFrom:
		k.bulk = true
		l.bulk++
	case k.bulk && k.fullInRow == 0:
		k.bulk = false
		l.bulk--
	}
}

// readable handles the completion of a poll: plain calls receive.
func (l *ringLoop) readable(c *Conn, errno syscall.Errno) {
	k := &c.bstate
	k.armed, k.canceling, k.polling = false, false, false
	l.markDirty(c)
	if errno == syscall.ECANCELED { // by the loop, or the thread that armed it has exited
		return
	}
	c.mu.Lock()
	want := c.wantsInput() && !k.ending && (!l.leaving || k.drained)
	c.mu.Unlock()
	if k.mayHaveMore = false; !want || k.kept != nil {
		return // the next poll reports it again
	}
	n, more := l.receiveNow(c)
	l.flow += n
	k.wasFull = false
	l.noteFlow(k, n >= l.server.opts.BufferSize)
	k.mayHaveMore = more
}

// sent handles the completion of a send.
func (l *ringLoop) sent(e uring.CQE) {
	c := l.find(e.UserData)
	if c == nil {
		return
	}
	c.mu.Lock()
	c.out.busy = false
	switch errno := e.Errno(); errno {
	case 0:
		c.out.advance(int(e.Res))
	case syscall.ECANCELED, syscall.EINTR, syscall.EAGAIN:
		// The thread that submitted it has exited, or the connection ends.
	default:
		c.fail(c.opError("write", os.NewSyscallError("send", errno)))
	}
	s := &c.state
	rest := c.out.n > 0 || s.closing || s.finWrite || s.aborted || s.full || s.writableDue || len(c.out.finished) > 0
	c.mu.Unlock()
	if rest {
		l.markDirty(c)
	}
}

// output implements driver: it sends the pending bytes. The caller holds the connection's
// mutex.
func (l *ringLoop) output(c *Conn) {
	s, k := &c.state, &c.bstate
	if c.out.busy || s.aborted {
		return
	}
	if c.out.head != nil && c.out.head.file != nil {
		l.sendFile(c)
		return
	}
	// One thread cannot copy as much as the goroutines of package net.
	offload := c.out.head != nil && c.out.head.large && l.workers && l.server.offloads()
	if c.out.n > 0 && !offload && (l.few || c.out.n >= directFrom) && !l.sendPending(c) {
		if s.closing && c.out.n == 0 {
			l.markDirty(c) // Now it can end.
		}
		if c.out.n > 0 || s.aborted {
			return
		}
	}
	if p := c.out.front(); p != nil {
		c.out.busy = true
		e := l.sqe().Send(uring.Fd(k.fd), p, syscall.MSG_NOSIGNAL|syscall.MSG_WAITALL).SetUserData(k.tag(kindSend))
		if offload {
			e.SetFlags(uring.SQEAsync)
		} else {
			l.bytes += len(p)
		}
		return
	}
	if s.finWrite && !s.finSent {
		s.finSent = true
		_ = syscall.Shutdown(k.fd, syscall.SHUT_WR) // ENOTCONN: the receive returns the error
	}
}

// awaitWritable implements driver.
func (l *ringLoop) awaitWritable(c *Conn) {
	k := &c.bstate
	if e := l.sqe(); e != nil {
		c.out.busy = true
		e.PollAdd(uring.Fd(k.fd), pollOut).SetUserData(k.tag(kindWritable))
		return
	}
	l.markDirty(c) // to try again
}

// input implements driver: it starts or stops the receive, and reports whether kept
// data can be passed to the handler. The caller holds the connection's mutex.
func (l *ringLoop) input(c *Conn) (release bool) {
	s, k := &c.state, &c.bstate
	want := c.wantsInput()
	draining := l.leaving && !k.drained
	switch {
	case k.ending: // end cancels all operations
	case k.armed && !k.canceling && (!want || draining || k.tid != l.tid || k.bulk && !k.oneShot || k.kept != nil || k.missesEnd()):
		k.canceling = true
		l.sqe().Cancel(k.tag(kindRecv)).SetUserData(k.tag(kindCancel))
	case k.kept != nil:
		return want
	case k.mayHaveMore && !k.armed && !draining:
		return want && !s.eof
	case !k.armed && want && !draining && !s.eof:
		l.receive(c)
	case k.armed && !k.oneShot && !k.endArmed && !k.hungUp: // its thread has exited
		l.pollEnd(c)
	}
	return false
}

// receive arms the receive: a poll where plain calls receive (noteFlow), otherwise
// multishot, except after the end of the stream was reported (pollEnd).
func (l *ringLoop) receive(c *Conn) {
	k := &c.bstate
	k.oneShot = k.bulk || k.hungUp
	if k.tid != 0 && !k.oneShot {
		l.count.rearms.Add(1)
	}
	k.armed, k.mayHaveMore, k.nonEmpty, k.tid = true, false, false, l.tid
	k.polling = k.bulk
	if e := l.sqe(); k.polling {
		e.PollAdd(uring.Fd(k.fd), pollIn).SetUserData(k.tag(kindRecv))
	} else if k.oneShot {
		e.RecvSelect(uring.Fd(k.fd), 0, 0, l.bufs.Group()).SetUserData(k.tag(kindRecv))
	} else {
		e.RecvMultishot(uring.Fd(k.fd), 0, l.bufs.Group()).SetUserData(k.tag(kindRecv))
		l.pollEnd(c)
	}
}

// pollEnd polls for the end of the stream beside a multishot receive, which may miss it:
// the kernel takes the last bytes, finds that the socket holds no more, waits, and does not
// check whether the connection has ended meanwhile
// (results/kernel-reports/multishot-receive-end.md, TestEndAfterData).
func (l *ringLoop) pollEnd(c *Conn) {
	if k := &c.bstate; !k.endArmed {
		k.endArmed = true
		l.sqe().PollAdd(uring.Fd(k.fd), pollEnd).SetUserData(k.tag(kindEnd))
	}
}

// endPolled handles the completion of that poll. Only the receive tells how the stream has
// ended, after the data.
func (l *ringLoop) endPolled(e uring.CQE) {
	c := l.find(e.UserData)
	if c == nil {
		return
	}
	k := &c.bstate
	k.endArmed = false
	switch e.Errno() {
	case syscall.ECANCELED, syscall.EINTR, syscall.EAGAIN:
		// The connection ends, or the thread that had armed it has exited: input polls again.
	default:
		k.hungUp = true
	}
	l.markDirty(c)
}

// missesEnd reports whether the receive that is armed may not report the end of the stream,
// although the end has come: it is multishot and waits.
func (k *backendState) missesEnd() bool { return k.hungUp && !k.oneShot && !k.nonEmpty }

// ensureSpace implements driver: it ensures that there are enough free SQEs to process one
// connection.
func (l *ringLoop) ensureSpace() bool {
	if l.ring.SQSpace() < reserve {
		l.submit()
		return l.ring.SQSpace() >= reserve
	}
	return true
}

// sqe returns an entry. After ensureSpace it is not nil.
func (l *ringLoop) sqe() *uring.SQE {
	e := l.ring.SQE()
	if e == nil && l.submit() {
		e = l.ring.SQE()
	}
	return e
}

// noSlot is the slot in the user data of entries that belong to no connection.
const noSlot = 1<<32 - 1

// armAccept implements driver.
func (l *ringLoop) armAccept() {
	a := &l.listen
	if a.armed || a.stopped {
		return
	}
	e := l.ring.SQE()
	if e == nil {
		a.retryAt = time.Now()
		return
	}
	e.AcceptMultishot(uring.Fd(a.fd), syscall.SOCK_CLOEXEC).SetUserData(tag(kindAccept, noSlot, 0))
	a.armed, a.retryAt = true, time.Time{}
}

// accepted handles a completion of the accept.
func (l *ringLoop) accepted(c uring.CQE) {
	a := &l.listen
	if !c.Has(uring.CQEMore) {
		a.armed = false
	}
	errno := c.Errno()
	switch {
	case a.armed:
	case a.stopped:
		l.closeListener()
	case errno == 0 || retries(errno):
		l.armAccept()
	default:
		// The kernel fails at once, so accepting again at once would spin. The
		// connections wait in the backlog.
		l.pauseAccept()
	}
	if errno == 0 {
		a.pause = 0
		l.attach(int(c.Res))
	}
}

// retries reports whether accepting may be tried again at once: one connection was
// lost, or the thread that had armed the accept has exited.
func retries(errno syscall.Errno) bool {
	switch errno {
	case syscall.ECONNABORTED, syscall.EINTR, syscall.EAGAIN, syscall.ECANCELED:
		return true
	}
	return false
}

// disarm implements driver.
func (l *ringLoop) disarm() {
	if !l.listen.armed {
		l.closeListener()
		return
	}
	if e := l.sqe(); e != nil {
		e.Cancel(tag(kindAccept, noSlot, 0)).SetUserData(tag(kindCancel, noSlot, 0))
		return
	}
	l.post(l.disarm)
}

// ringRestrictions are the operations of a loop.
var ringRestrictions = uring.Restrictions{
	Ops: []uring.Op{uring.OpAccept, uring.OpRecv, uring.OpRecvMsg, uring.OpSend, uring.OpAsyncCancel, uring.OpPollAdd},
	RegisterOps: []uring.RegisterOp{uring.OpRegisterRingFDs, uring.OpUnregisterRingFDs,
		uring.OpRegisterPBufRing, uring.OpUnregisterPBufRing, uring.OpRegisterPBufStatus, uring.OpRegisterIOWQMaxWorkers},
	FlagsAllowed: uring.SQEBufferSelect | uring.SQEAsync,
}

// openPackets implements driver: it registers buffers for datagrams.
func (l *ringLoop) openPackets() (err error) {
	if l.packetBufs != nil {
		return nil
	}
	if l.packetSlab, err = sys.MapAnon(packetSlots*packetSlot, false); err != nil {
		return err
	}
	l.packetBufs, err = l.ring.NewBufRing(uring.BufRingOptions{Group: packetGroup, Entries: packetSlots, BufferSize: packetSlot,
		Memory: l.packetSlab.Bytes()[:packetSlots*packetSlot]})
	if err != nil {
		_ = l.packetSlab.Unmap()
		l.packetBufs, l.packetSlab = nil, nil
	}
	return err
}

// packetInput implements driver.
func (l *ringLoop) packetInput(s *loopSocket, want bool) {
	switch {
	case s.armed && !s.canceling && (!want || s.tid != l.tid):
		s.canceling = true
		l.sqe().Cancel(s.tag(kindPacket)).SetUserData(s.tag(kindPacketCancel))
	case want && !s.armed:
		if s.tid != 0 {
			l.count.rearms.Add(1)
		}
		s.armed, s.tid = true, l.tid
		l.sqe().RecvMsgMultishot(uring.Fd(s.fd), &s.msg, 0, packetGroup).SetUserData(s.tag(kindPacket))
	}
	s.mu.Lock()
	blocked := s.blocked
	s.mu.Unlock()
	if blocked && !s.polled {
		s.polled = true
		l.sqe().PollAdd(uring.Fd(s.fd), uring.PollEvents(watch.Write)).SetUserData(s.tag(kindPacketPoll))
	}
}

// endPackets implements driver.
func (l *ringLoop) endPackets(s *loopSocket) bool {
	if !s.armed && !s.polled {
		return true
	}
	if !s.ending {
		s.ending = true
		l.sqe().CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(s.fd), All: true}).SetUserData(s.tag(kindPacketCancel))
	}
	return false
}

// packetCompleted handles the completions of datagram sockets.
func (l *ringLoop) packetCompleted(e uring.CQE) {
	s := l.findSocket(e.UserData)
	switch e.UserData >> kindShift {
	case kindPacket:
		l.packetReceived(s, e)
	case kindPacketPoll:
		if s != nil {
			s.polled = false
			s.mu.Lock()
			s.blocked = false
			s.notifyAndUnlock()
		}
	case kindPacketCancel:
		// It is repeated as that of a connection; see canceled.
		if s != nil && (e.Res < 0 || s.ending) {
			l.delay(func() {
				if l.findSocket(e.UserData) == s && (s.armed || s.polled) {
					s.canceling, s.ending = false, false
					s.notify()
				}
			})
		}
	}
}

// packetReceived delivers the datagram of a completion and returns its buffer. s is nil if the socket
// was closed.
func (l *ringLoop) packetReceived(s *loopSocket, e uring.CQE) {
	data, _ := l.packetBufs.Take(e)
	if e.Has(uring.CQEBuffer) {
		defer func() { // OnPacket may end the goroutine
			sys.Poison(data)
			l.packetBufs.Recycle(e.BufferID())
			l.unpublishedPackets = true
		}()
	}
	if s == nil {
		return
	}
	if !e.Has(uring.CQEMore) {
		s.armed, s.canceling = false, false
		s.notify()
	}
	if e.Res >= 0 {
		if s.armed && s.tid != l.tid && !s.canceling {
			s.notify()
		}
		if m, ok := uring.ParseMultishotMsg(data, &s.msg); ok {
			if m.Flags&sys.MsgTrunc != 0 {
				m.Payload = m.Payload[:maxPacket+1]
			}
			s.deliver(m.Name, m.Control, m.Payload)
		}
		return
	}
	switch errno := e.Errno(); errno {
	case syscall.ENOBUFS:
		l.count.noBuffers.Add(1)
	case syscall.ECANCELED, syscall.EINTR, syscall.EAGAIN:
		// The loop cancelled it, or the thread that armed it has exited.
	default:
		s.fail(os.NewSyscallError("recvmsg", errno))
	}
}
