// SPDX-License-Identifier: MIT

package unet

import (
	"math"
	"net"
	"time"
	"weak"
)

// deadlines are the two deadlines of a socket and the timer that watches the
// nearer one. A deadline that moves away, as it does with each request of a
// server with timeouts, leaves the timer alone: it finds out when it fires.
// Guarded by the socket's mu.
type deadlines struct {
	read, write int64 // since epoch, 0 for none
	armed       int64 // when the timer fires, 0 when it does not
	timer       *time.Timer
}

var epoch = time.Now()

// sinceEpoch converts a deadline, of which some time is left, to its time since
// epoch.
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

// setDeadline sets the deadlines of the directions that are asked for. It takes
// effect for calls that wait, too.
func (s *sock) setDeadline(t time.Time, read, write bool) error {
	now := time.Now()
	switch left := t.Sub(now); {
	case t.IsZero():
		return s.setWhen(0, read, write)
	case left <= 0:
		return s.setWhen(-1, read, write)
	case bubbled(now):
		return s.setBubbled(left, read, write)
	default:
		return s.setWhen(sinceEpoch(now, left), read, write)
	}
}

// setBubbled is setDeadline for a time that is left of a bubble's clock.
func (s *sock) setBubbled(left time.Duration, read, write bool) (err error) {
	outside(func() { err = s.setWhen(sinceEpoch(time.Now(), left), read, write) })
	return err
}

// setWhen is setDeadline with a time since epoch: 0 for none, a negative value for
// one that has passed.
func (s *sock) setWhen(when int64, read, write bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return net.ErrClosed
	}
	if read {
		s.clock.read = max(when, 0)
		s.rd.expire(when < 0)
	}
	if write {
		s.clock.write = max(when, 0)
		s.wr.expire(when < 0)
	}
	s.arm(when)
	return nil
}

// expire notes whether the deadline has passed. The caller holds the socket's mu.
func (h *half) expire(passed bool) {
	h.expired.Store(passed)
	if passed {
		h.interrupt()
	}
}

// arm makes the timer fire no later than when, if that is a time. The caller
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
	self := weak.Make(s) // a timer must not keep a dropped socket open
	d.timer = time.AfterFunc(left, func() {
		if s := self.Value(); s != nil {
			s.tick()
		}
	})
}

// tick runs when the timer fires.
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
		s.rd.expire(true)
	}
	if d.write != 0 && d.write <= now {
		d.write = 0
		s.wr.expire(true)
	}
	s.arm(d.read)
	s.arm(d.write)
}
