// SPDX-License-Identifier: MIT

package unet

import (
	"math"
	"net"
	"time"
	"weak"
)

// deadlines are the two deadlines of a socket and the timer of the nearer one.
// Extending a deadline, as a server with timeouts does for each request, does not
// reset the timer; tick re-arms it. The socket's mu guards them.
type deadlines struct {
	read, write int64 // since epoch, 0 for none
	armed       int64 // when the timer fires, 0 when it does not
	timer       *time.Timer
}

var epoch = time.Now()

// sinceEpoch returns the time since epoch of a deadline that is in left from now.
func sinceEpoch(now time.Time, left time.Duration) int64 {
	passed := now.Sub(epoch)
	if left > math.MaxInt64-passed {
		return math.MaxInt64
	}
	return int64(passed + left)
}

func (d *deadlines) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

// setDeadline sets the deadline of reading, of writing, or of both. It also affects calls
// that already wait.
func (s *sock) setDeadline(t time.Time, read, write bool) error {
	switch { // net/http makes these two calls for each request: they need no clock
	case t.IsZero():
		return s.setWhen(0, read, write)
	case t.Unix() <= 1: // no clock was set to 1970 and then read within a second
		return s.setWhen(-1, read, write)
	}
	now := time.Now()
	switch left := t.Sub(now); {
	case left <= 0:
		return s.setWhen(-1, read, write)
	case bubbled(now):
		return s.setBubbled(left, read, write)
	default:
		return s.setWhen(sinceEpoch(now, left), read, write)
	}
}

// setBubbled is setDeadline in a bubble; left is the time until the deadline on its clock.
func (s *sock) setBubbled(left time.Duration, read, write bool) (err error) {
	outside(func() { err = s.setWhen(sinceEpoch(time.Now(), left), read, write) })
	return err
}

// setWhen is setDeadline for a time since epoch: 0 means none, a negative value one
// that has passed.
func (s *sock) setWhen(when int64, read, write bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return net.ErrClosed
	}
	if read {
		s.clock.read = max(when, 0)
		s.rd.expire(s, when < 0)
	}
	if write {
		s.clock.write = max(when, 0)
		s.wr.expire(s, when < 0)
	}
	if s.rd.mode.Load() == young {
		s.setYoung(when, read, write)
	} else {
		s.arm(when)
	}
	return nil
}

// setYoung sets deadlines of a young socket. settle arms the timer. The caller holds mu.
func (s *sock) setYoung(when int64, read, write bool) {
	t := time.Unix(1, 0)
	switch {
	case when == 0:
		t = time.Time{}
	case when > 0:
		t = epoch.Add(time.Duration(when))
	}
	if read {
		s.alone.setDeadline(true, t)
	}
	if write {
		s.alone.setDeadline(false, t)
	}
}

// expire records whether the deadline has passed. The caller holds the mu of s, the socket.
func (h *direction) expire(s *sock, passed bool) {
	h.expired.Store(passed)
	if passed {
		h.interrupt(s)
	}
}

// arm makes the timer fire no later than when, if that is positive. The caller
// holds mu.
func (s *sock) arm(when int64) {
	d := &s.clock
	if when <= 0 || d.armed != 0 && d.armed <= when {
		return
	}
	d.armed = when
	left := time.Duration(when) - time.Since(epoch)
	if d.timer != nil {
		d.timer.Reset(left)
		return
	}
	self := weak.Make(s) // the timer must not keep a dropped socket alive
	d.timer = time.AfterFunc(left, func() {
		if s := self.Value(); s != nil {
			s.tick()
		}
	})
}

// tick expires deadlines that have passed and re-arms the timer for the others.
func (s *sock) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	d, now := &s.clock, int64(time.Since(epoch))
	d.armed = 0
	if d.read != 0 && d.read <= now {
		d.read = 0
		s.rd.expire(s, true)
	}
	if d.write != 0 && d.write <= now {
		d.write = 0
		s.wr.expire(s, true)
	}
	s.arm(d.read)
	s.arm(d.write)
}
