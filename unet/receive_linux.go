// SPDX-License-Identifier: MIT

package unet

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// receive is one that the loop makes for a reader that waits. The reader leaves
// when it is told that the receive is over, so the socket stays open and the
// buffer in place.
type receive struct {
	sock *sock
	buf  []byte
}

// lengthy is how many bytes a batch may receive without telling the scheduler.
const lengthy = 256 << 10

// receive makes the receives that were gathered.
func (l *loop) receive() {
	switch {
	case len(l.batch) == 0:
		return
	case len(l.batch) > 1 && l.useRing && l.openRing():
		l.receiveRing()
	default:
		l.receivePlain()
	}
	clear(l.batch)
	l.batch = l.batch[:0]
}

func (l *loop) receivePlain() {
	for _, r := range l.batch {
		if r.sock == nil {
			continue
		}
		n, errno := sys.SockRecv(r.sock.fd.Int(), r.buf, sys.MsgDontWait)
		r.sock.received(l, n, errno)
	}
}

// openRing opens the ring when it is first needed. Without one, which is for
// want of memory or descriptors, plain calls do the same.
func (l *loop) openRing() bool {
	if l.ring != nil {
		return true
	}
	o := uring.Options{Entries: maxBatch, SubmitAll: true}
	if l.system.opts.Restrict {
		o.Restrict = &uring.Restrictions{Ops: []uring.Op{uring.OpRecv}}
	}
	r, err := uring.Open(o)
	if err != nil {
		o.SubmitAll = false // before 5.18
		r, err = uring.Open(o)
	}
	if err != nil {
		l.useRing = false
		return false
	}
	l.ring, l.cqes = r, make([]uring.CQE, maxBatch)
	return true
}

// receiveRing makes all receives in one call. None waits, so all of them are
// complete when it returns.
func (l *loop) receiveRing() {
	bytes := 0
	for i, r := range l.batch {
		l.ring.SQE().Recv(uring.Fd(r.sock.fd.Int()), r.buf, sys.MsgDontWait).Raw().UserData = uint64(i)
		bytes += len(r.buf)
	}
	for left := len(l.batch); left > 0; {
		_, err := l.ring.Wait(uring.WaitOptions{Count: left, Brief: bytes <= lengthy})
		n := l.ring.Reap(l.cqes)
		for _, c := range l.cqes[:n] {
			l.finishReceive(c)
		}
		left -= n
		if err != nil && left > 0 && !l.ringGoesOn(&left) {
			return
		}
	}
}

// finishReceive hands a result to its reader.
func (l *loop) finishReceive(c uring.CQE) {
	r := &l.batch[c.UserData]
	r.sock.received(l, int(max(c.Res, 0)), c.Errno())
	*r = receive{}
}

// ringGoesOn decides after a failed call. What the kernel took completes; what
// it did not take is received with plain calls, and the ring is given up.
func (l *loop) ringGoesOn(left *int) bool {
	if *left > l.ring.Pending() {
		return true // the kernel has some of them: go on waiting
	}
	_ = l.ring.Close() // nothing is in flight
	l.ring, l.useRing = nil, false
	l.receivePlain()
	return false
}

// received is told the result of a receive that loop l made for the reader.
func (s *sock) received(l *loop, n int, errno syscall.Errno) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.rd
	switch {
	case errno == syscall.EAGAIN && !s.closing && !h.expired.Load():
		h.state = parked // it was a false alarm
		return
	case errno == syscall.EAGAIN:
	case errno == syscall.EINTR, errno == syscall.ECANCELED: // nobody here cancels
		h.ready.Store(true)
	default:
		sys.RaceWrite(s.in.buf[:n])
		s.mayHoldMore(n, len(s.in.buf), errno)
		s.in.n, s.in.errno, s.in.done = n, uint32(errno), true
		if l.driving {
			s.in.counted = true
			l.woken.Add(1)
		}
	}
	h.finish()
}

// mayHoldMore notes after a receive of n bytes into room whether another would
// bring something at once. After a short one a stream is empty, and the loop
// will tell when that changes.
func (s *sock) mayHoldMore(n, room int, errno syscall.Errno) {
	if errno != 0 || n == room || n == 0 || s.wary.Load() {
		s.rd.ready.Store(true)
	}
}
