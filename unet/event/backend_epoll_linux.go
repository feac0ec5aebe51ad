// SPDX-License-Identifier: MIT

package event

import (
	"context"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/watch"
)

// pollLoop drives a loop by readiness: a watch.Loop on epoll. Data is received
// and sent by plain calls that do not block. Registrations are level-triggered. A
// connection on which the loop waits for nothing has no registration, so that its end is
// not reported repeatedly.
type pollLoop struct {
	loop
	w           *watch.Loop
	endTurnFunc func() // the method, bound once
	timer       *watch.Timer
	alarm       time.Time // what the timer is set to
}

// start implements driver.
func (l *pollLoop) start() (err error) {
	if l.w, err = watch.NewLoop(watch.Options{Mode: watch.ModeEpoll}); err != nil {
		return err
	}
	l.endTurnFunc = l.endTurn
	l.timer = l.w.NewTimer(l.alarmed)
	l.post(l.armAccept)
	return nil
}

// undo implements driver.
func (l *pollLoop) undo() error { return l.w.Close() }

// run implements driver.
func (l *pollLoop) run() {
	l.wake() // a callback that exited may have left work
	if l.broken == nil {
		if err := l.w.Run(context.Background()); err != nil {
			l.fail(err)
		}
	}
	if l.broken != nil {
		l.closeAll()
	}
	_ = l.w.Close()
}

// idle implements driver. A connection with a callback in progress is notified already,
// so its Write waits for the end of the turn; any other Write is sent at once.
func (l *pollLoop) idle() bool { return true }

// wake implements driver. From the loop itself it costs no system call.
func (l *pollLoop) wake() { _ = l.w.Post(l.endTurnFunc) } // It fails when the loop is over.

// endTurn ends each event: it processes the inbox and the marked connections, and sets
// the timer.
func (l *pollLoop) endTurn() {
	if l.server.traces() {
		defer region().End()
	}
	l.turns++
	l.processInbox()
	l.processDirty()
	switch {
	case l.finished():
		l.w.Stop()
		return
	case len(l.dirty) > 0:
		l.wake()
	}
	at := l.nextTimer()
	if at.Equal(l.alarm) {
		return
	}
	if l.alarm = at; at.IsZero() {
		l.timer.Stop()
		return
	}
	l.timer.Reset(time.Until(at))
}

// alarmed is called when the earliest timer is due.
func (l *pollLoop) alarmed() {
	l.alarm = time.Time{}
	l.fireTimers()
	l.endTurn()
}

// ensureSpace implements driver.
func (l *pollLoop) ensureSpace() bool { return true }

// ready handles the events of a connection.
func (l *pollLoop) ready(c *Conn, found watch.Events) {
	k := &c.bstate
	if found&^watch.Read != 0 && k.watched&watch.Write != 0 {
		l.markDirty(c)
	}
	if found&^watch.Write != 0 && k.watched&watch.Read != 0 {
		l.receiveNow(c)
	}
	l.endTurn()
}

// output implements driver.
func (l *pollLoop) output(c *Conn) {
	s, k := &c.state, &c.bstate
	if !c.out.busy && l.sendPending(c) {
		l.watch(c, k.watched|watch.Write)
		return
	}
	switch {
	case c.out.busy: // with a file, until awaitWritable or the end
		l.watch(c, k.watched&^watch.Write)
		return
	case c.out.n > 0:
		return // later
	}
	if s.finWrite && !s.finSent {
		s.finSent = true
		_ = syscall.Shutdown(k.fd, syscall.SHUT_WR) // ENOTCONN: the receive returns the error
	}
	l.watch(c, k.watched&^watch.Write)
	if s.closing {
		l.markDirty(c) // It can end now.
	}
}

// input implements driver.
func (l *pollLoop) input(c *Conn) (release bool) {
	k := &c.bstate
	want := c.wantsInput()
	if k.kept != nil {
		l.watch(c, k.watched&^watch.Read)
		return want
	}
	if want && (!l.leaving || k.drained) {
		l.watch(c, k.watched|watch.Read)
	} else {
		l.watch(c, k.watched&^watch.Read)
	}
	return false
}

// watch changes what a connection is watched for.
func (l *pollLoop) watch(c *Conn, events watch.Events) {
	k := &c.bstate
	if events == k.watched {
		return
	}
	var err error
	switch {
	case events == 0:
		err = l.w.Remove(k.fd)
	case k.watched == 0:
		err = l.w.Add(k.fd, events, watch.Level, func(found watch.Events) { l.ready(c, found) })
	default:
		err = l.w.Modify(k.fd, events, watch.Level)
	}
	if err != nil {
		c.fail(c.opError("read", err))
		l.markDirty(c)
		return
	}
	k.watched = events
}

// end implements driver: only a file may be in flight, whose goroutine notices the end.
func (l *pollLoop) end(c *Conn) bool { return !c.out.busy }

// awaitWritable implements driver.
func (l *pollLoop) awaitWritable(c *Conn) { l.watch(c, c.bstate.watched|watch.Write) }

// forget implements driver.
func (l *pollLoop) forget(c *Conn) {
	if c.bstate.watched != 0 {
		c.bstate.watched = 0
		_ = l.w.Remove(c.bstate.fd) // It is registered.
	}
}

// armAccept implements driver.
func (l *pollLoop) armAccept() {
	a := &l.listen
	if a.armed || a.stopped {
		return
	}
	err := syscall.SetNonblock(a.fd, true)
	if err == nil {
		err = l.w.Add(a.fd, watch.Read, watch.Level, func(watch.Events) { l.accept(); l.endTurn() })
	}
	if err != nil {
		l.pauseAccept()
		return
	}
	a.armed, a.retryAt = true, time.Time{}
}

// accept accepts waiting connections.
func (l *pollLoop) accept() {
	a := &l.listen
	for range acceptBatch {
		fd, _, errno := sys.SockAccept(a.fd, nil)
		switch errno {
		case 0:
			a.pause = 0
			l.attach(fd)
		case syscall.EINTR, syscall.ECONNABORTED:
		case syscall.EAGAIN:
			return
		default:
			l.unwatchListener()
			l.pauseAccept()
			return
		}
	}
}

func (l *pollLoop) unwatchListener() {
	if l.listen.armed {
		l.listen.armed = false
		_ = l.w.Remove(l.listen.fd) // It is registered.
	}
}

// disarm implements driver.
func (l *pollLoop) disarm() {
	l.unwatchListener()
	l.closeListener()
}

// openPackets implements driver.
func (l *pollLoop) openPackets() error { return nil }

// packetInput implements driver.
func (l *pollLoop) packetInput(s *loopSocket, want bool) {
	var events watch.Events
	if want {
		events = watch.Read
	}
	s.mu.Lock()
	if s.blocked {
		events |= watch.Write
	}
	s.mu.Unlock()
	if events == s.watched {
		return
	}
	var err error
	switch {
	case events == 0:
		err = l.w.Remove(s.fd)
	case s.watched == 0:
		err = l.w.Add(s.fd, events, watch.Level, func(found watch.Events) { l.packetReady(s, found) })
	default:
		err = l.w.Modify(s.fd, events, watch.Level)
	}
	if err != nil {
		s.fail(err)
		return
	}
	s.watched = events
}

func (l *pollLoop) packetReady(s *loopSocket, found watch.Events) {
	if found&^watch.Read != 0 && s.watched&watch.Write != 0 {
		s.mu.Lock()
		s.blocked = false
		s.notifyAndUnlock()
	}
	if found&^watch.Write != 0 && s.watched&watch.Read != 0 {
		budget := maxDrain
		s.receive(&budget)
	}
	l.endTurn()
}

// endPackets implements driver: nothing is ever in flight.
func (l *pollLoop) endPackets(s *loopSocket) bool {
	if s.watched != 0 {
		s.watched = 0
		_ = l.w.Remove(s.fd) // It is registered.
	}
	return true
}
