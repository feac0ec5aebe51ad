// SPDX-License-Identifier: MIT

package event

import (
	"net"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/uring"
)

// Kinds of entries, in the user data.
const (
	kindAccept = iota + 1
	kindRecv
	kindSend
	kindCancel    // of a receive, or of the accept
	kindCancelAll // of what a connection has in flight
)

const (
	genMask   = 1<<24 - 1
	genShift  = 32
	kindShift = 56
)

// tag is the user data of an entry: its kind, and the connection's slot and
// generation.
func tag(kind int, slot, gen uint32) uint64 {
	return uint64(kind)<<kindShift | uint64(gen)<<genShift | uint64(slot)
}

func (k *link) tag(kind int) uint64 { return tag(kind, k.slot, k.gen) }

// find returns the connection of a completion, nil if it is gone.
func (l *loop) find(userData uint64) *Conn {
	slot := uint32(userData)
	if int(slot) >= len(l.conns) {
		return nil
	}
	c := l.conns[slot]
	if c == nil || c.link.gen != uint32(userData>>genShift)&genMask {
		return nil
	}
	return c
}

// complete handles one completion.
func (l *loop) complete(e uring.CQE) {
	switch e.UserData >> kindShift {
	case kindRecv:
		l.received(e)
	case kindSend:
		l.sent(e)
	case kindAccept:
		l.accepted(e)
	case kindCancel, kindCancelAll:
		l.canceled(e)
	}
}

// canceled handles the completion of a cancellation. One that found nothing, or
// came at a bad moment, is repeated as long as there is something to end.
func (l *loop) canceled(e uring.CQE) {
	found := e.Res >= 0
	if e.UserData>>kindShift == kindCancelAll {
		found = e.Res > 0
	}
	if c := l.find(e.UserData); c != nil && !found {
		c.link.canceling, c.link.ending = false, false
		l.touch(c)
	}
}

// received handles a completion of a receive.
func (l *loop) received(e uring.CQE) {
	c := l.find(e.UserData)
	data, _ := l.bufs.Take(e)
	if c != nil {
		l.input(c, e, data)
	}
	if e.Has(uring.CQEBuffer) {
		l.bufs.Recycle(e.BufferID())
		l.dirty = true
	}
}

// input gives a completion to its connection.
func (l *loop) input(c *Conn, e uring.CQE, data []byte) {
	k := &c.link
	if !e.Has(uring.CQEMore) {
		k.armed, k.canceling = false, false
		l.touch(c)
	}
	if e.Res > 0 {
		l.deliver(c, data)
		if k.armed && k.tid != l.tid && !k.canceling {
			l.touch(c)
		}
		return
	}
	switch errno := e.Errno(); errno {
	case syscall.ENOBUFS:
		l.count.noBuffers.Add(1)
	case syscall.ECANCELED, syscall.EINTR, syscall.EAGAIN:
		// We asked for it, or the thread that armed it is gone.
	default:
		if k.held.queue.n > 0 {
			k.held.ended, k.held.res = true, e.Res
			return
		}
		l.broke(c, e.Res)
	}
}

// deliver gives data to the handler, or keeps it while reading is stopped.
func (l *loop) deliver(c *Conn, data []byte) {
	k := &c.link
	c.mu.Lock()
	want := c.wantsInput()
	gone := c.state.closing || c.state.aborted || k.discard
	now := want && !gone && k.held.queue.n == 0
	if now {
		c.state.kicked = true // the loop looks anyhow: what is written needs no mail
	}
	c.mu.Unlock()
	switch {
	case gone:
	case now:
		c.onData(data)
		l.touch(c)
	default:
		k.held.queue.add(data)
		l.touch(c)
	}
}

// release gives to the handler what was kept.
func (l *loop) release(c *Conn) {
	h := &c.link.held
	for h.queue.n > 0 {
		c.mu.Lock()
		want := c.wantsInput()
		c.mu.Unlock()
		if !want {
			break
		}
		p := h.queue.front()
		p = p[:min(len(p), l.server.opts.BufferSize)]
		c.onData(p)
		h.queue.advance(len(p))
	}
	if h.queue.n == 0 && h.ended {
		h.ended = false
		l.broke(c, h.res)
	}
	l.touch(c)
}

// broke handles the end of what is received: end of stream, or an error.
func (l *loop) broke(c *Conn, res int32) {
	if res == 0 {
		c.ended(c.link.discard)
	} else {
		c.mu.Lock()
		c.fail(c.opError("read", os.NewSyscallError("recv", syscall.Errno(-res))))
		c.mu.Unlock()
	}
	l.touch(c)
}

// sent handles the completion of a send.
func (l *loop) sent(e uring.CQE) {
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
		// The thread that submitted it is gone, or the connection ends.
	default:
		c.fail(c.opError("write", os.NewSyscallError("send", errno)))
	}
	s := &c.state
	rest := c.out.n > 0 || s.closing || s.finWrite || s.aborted || s.full || s.starved
	c.mu.Unlock()
	if rest {
		l.touch(c)
	}
}

// look does what the state of a connection asks for.
func (l *loop) look(c *Conn) {
	c.mu.Lock()
	s := &c.state
	if s.closed {
		c.mu.Unlock()
		return
	}
	if !l.room() {
		c.mu.Unlock()
		l.touch(c)
		return
	}
	s.kicked = false
	if s.timer {
		l.schedule(c)
	}
	if l.lookEnd(c) {
		c.mu.Unlock()
		l.finish(c)
		return
	}
	l.lookOutput(c)
	release := l.lookInput(c)
	writable := c.takeWritable()
	c.mu.Unlock()
	if writable {
		c.onWritable()
	}
	if release {
		l.release(c)
	}
	if l.leaving && !c.link.drained && !c.link.armed {
		l.drain(c)
	}
}

// lookEnd says whether the connection can be closed now, and does what brings
// that about. The caller holds the connection's mutex.
func (l *loop) lookEnd(c *Conn) bool {
	s, k := &c.state, &c.link
	switch {
	case s.aborted:
	case s.closing && c.out.n == 0 && !c.out.busy:
	default:
		return false
	}
	if !k.armed && !c.out.busy {
		return true
	}
	if !k.ending {
		k.ending = true
		l.sqe().CancelFD(uring.Fd(k.fd), uring.CancelAll).SetUserData(k.tag(kindCancelAll))
	}
	return false
}

// lookOutput sends what is pending. The caller holds the connection's mutex.
func (l *loop) lookOutput(c *Conn) {
	s, k := &c.state, &c.link
	if c.out.busy || s.aborted {
		return
	}
	if p := c.out.front(); p != nil {
		c.out.busy = true
		l.bytes += len(p)
		l.sqe().Send(uring.Fd(k.fd), p, syscall.MSG_NOSIGNAL|syscall.MSG_WAITALL).SetUserData(k.tag(kindSend))
		return
	}
	if s.finWrite && !s.finSent {
		s.finSent = true
		_ = syscall.Shutdown(k.fd, syscall.SHUT_WR) // ENOTCONN: the receive says more
	}
}

// lookInput starts or stops the receive; it says whether what was kept can be
// given to the handler. The caller holds the connection's mutex.
func (l *loop) lookInput(c *Conn) (release bool) {
	s, k := &c.state, &c.link
	want := c.wantsInput()
	draining := l.leaving && !k.drained
	switch {
	case k.armed && !k.canceling && (!want || draining || k.tid != l.tid):
		k.canceling = true
		l.sqe().Cancel(k.tag(kindRecv), 0).SetUserData(k.tag(kindCancel))
	case k.held.queue.n > 0 || k.held.ended:
		return want
	case !k.armed && want && !draining && !s.eof:
		if k.tid != 0 {
			l.count.rearms.Add(1)
		}
		k.armed, k.tid = true, l.tid
		l.sqe().RecvMultishot(uring.Fd(k.fd), 0, l.bufs.Group()).SetUserData(k.tag(kindRecv))
	}
	return false
}

// room makes sure that looking at one connection finds enough entries.
func (l *loop) room() bool {
	if l.ring.SQSpace() < reserve {
		l.submit()
		return l.ring.SQSpace() >= reserve
	}
	return true
}

// sqe returns an entry. After room it is not nil.
func (l *loop) sqe() *uring.SQE {
	e := l.ring.SQE()
	if e == nil && l.submit() {
		e = l.ring.SQE()
	}
	return e
}

// finish closes a connection that the kernel has no operation of.
func (l *loop) finish(c *Conn) {
	k := &c.link
	c.mu.Lock()
	c.state.closed = true
	err := c.reason()
	reset := err == net.ErrClosed
	c.mu.Unlock()
	c.onClose(err)
	c.mu.Lock()
	fd := k.fd
	k.fd = -1
	c.out.drop()
	k.held.queue.drop()
	c.mu.Unlock()
	if reset {
		_ = syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
	}
	_ = syscall.Close(fd)
	l.conns[k.slot] = nil
	l.free = append(l.free, k.slot)
	l.open--
	l.count.open.Add(-1)
	if !l.listen.retryAt.IsZero() {
		l.armAccept() // There is a descriptor again.
	}
}
