// SPDX-License-Identifier: MIT

package event

import (
	"os"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// Kinds of entries, in the user data.
const (
	kindAccept = iota + 1
	kindRecv
	kindSend
	kindCancel    // of a receive, or of the accept
	kindCancelAll // of what a connection has in flight
	kindBell
)

// complete handles one completion.
func (l *ringLoop) complete(e uring.CQE) {
	switch e.UserData >> kindShift {
	case kindRecv:
		l.received(e)
	case kindSend:
		l.sent(e)
	case kindAccept:
		l.accepted(e)
	case kindBell:
		if !e.Has(uring.CQEMore) {
			l.armBell()
		}
	case kindCancel, kindCancelAll:
		l.canceled(e)
	}
}

// canceled handles the completion of a cancellation. One that found nothing, or
// came at a bad moment, is repeated as long as there is something to end.
func (l *ringLoop) canceled(e uring.CQE) {
	found := e.Res >= 0
	if e.UserData>>kindShift == kindCancelAll {
		found = e.Res > 0
	}
	if uint32(e.UserData) == noSlot {
		if a := &l.listen; !found && a.armed && a.stopped {
			l.disarm()
		}
		return
	}
	if c := l.find(e.UserData); c != nil && !found {
		c.link.canceling, c.link.ending = false, false
		l.touch(c)
	}
}

// received handles a completion of a receive.
func (l *ringLoop) received(e uring.CQE) {
	c := l.find(e.UserData)
	data, _ := l.bufs.Take(e)
	if e.Has(uring.CQEBuffer) {
		defer l.recycle(e.BufferID(), data) // OnData may end the goroutine
	}
	if c != nil {
		l.arrived(c, e, data)
	}
}

// recycle gives a buffer back that the handler is done with.
func (l *ringLoop) recycle(id uint16, data []byte) {
	sys.Poison(data)
	l.bufs.Recycle(id)
	l.dirty = true
}

// arrived gives a completion to its connection.
func (l *ringLoop) arrived(c *Conn, e uring.CQE, data []byte) {
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

// output implements driver: it sends what is pending. The caller holds the connection's mutex.
func (l *ringLoop) output(c *Conn) {
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

// input implements driver: it starts or stops the receive; it says whether what was kept can be
// given to the handler. The caller holds the connection's mutex.
func (l *ringLoop) input(c *Conn) (release bool) {
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
		l.receive(k)
	}
	return false
}

// receive starts to receive: again and again, but of a Unix socket once. Linux
// 6.18 counts what is left of those, and if data and the end arrive at the same
// time it shows a multishot receive the data, finds nothing left, and never
// looks again: the end was lost, and with it OnClose.
func (l *ringLoop) receive(k *link) {
	once := l.server.network == "unix"
	if k.tid != 0 && !once {
		l.count.rearms.Add(1)
	}
	k.armed, k.tid = true, l.tid
	if e := l.sqe(); once {
		e.RecvSelect(uring.Fd(k.fd), 0, 0, l.bufs.Group()).SetUserData(k.tag(kindRecv))
	} else {
		e.RecvMultishot(uring.Fd(k.fd), 0, l.bufs.Group()).SetUserData(k.tag(kindRecv))
	}
}

// room implements driver: it makes sure that looking at one connection finds enough entries.
func (l *ringLoop) room() bool {
	if l.ring.SQSpace() < reserve {
		l.submit()
		return l.ring.SQSpace() >= reserve
	}
	return true
}

// sqe returns an entry. After room it is not nil.
func (l *ringLoop) sqe() *uring.SQE {
	e := l.ring.SQE()
	if e == nil && l.submit() {
		e = l.ring.SQE()
	}
	return e
}
