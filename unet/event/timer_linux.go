// SPDX-License-Identifier: MIT

package event

import "time"

// alarm is when the loop looks at the timer of a connection. It does not keep
// one alive that has closed meanwhile.
type alarm struct {
	at   time.Time
	conn uint64 // as in user data
}

// timerHeap holds alarms, the earliest first. A timer that moves to a later
// time leaves its alarm where it is: the loop then sets another.
type timerHeap []alarm

func (h *timerHeap) push(a alarm) {
	*h = append(*h, a)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].at.Before(s[up].at) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *timerHeap) pop() alarm {
	s := *h
	first := s[0]
	n := len(s) - 1
	s[0], s[n] = s[n], alarm{}
	s = s[:n]
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && s[down+1].at.Before(s[down].at) {
			down++
		}
		if !s[down].at.Before(s[i].at) {
			break
		}
		s[i], s[down] = s[down], s[i]
		i = down
	}
	*h = s
	return first
}

// schedule sets an alarm for the timer of a connection, which has changed. The
// caller holds the connection's mutex.
func (l *loop) schedule(c *Conn) {
	c.state.timer = false
	if c.expiry.IsZero() || c.link.covers(c.expiry) {
		return
	}
	c.link.wakeAt = c.expiry
	l.timers.push(alarm{c.expiry, c.link.tag(0)})
}

// nextTimer returns when the loop has to wake up, zero for never.
func (l *loop) nextTimer() time.Time {
	at := l.retryAt
	if a := l.listen.retryAt; !a.IsZero() && (at.IsZero() || a.Before(at)) {
		at = a
	}
	if len(l.timers) > 0 && (at.IsZero() || l.timers[0].at.Before(at)) {
		at = l.timers[0].at
	}
	return at
}

// fireTimers does what is due and says whether anything was.
func (l *loop) fireTimers() bool {
	at := l.nextTimer()
	if at.IsZero() {
		return false
	}
	now := time.Now()
	if now.Before(at) {
		return false
	}
	if !l.retryAt.IsZero() && !now.Before(l.retryAt) {
		l.retryAt = time.Time{}
	}
	if at := l.listen.retryAt; !at.IsZero() && !now.Before(at) {
		l.d.armAccept()
	}
	for len(l.timers) > 0 && !now.Before(l.timers[0].at) {
		l.fire(l.timers.pop(), now)
	}
	return true
}

// fire handles an alarm: the timer may have been stopped, or moved.
func (l *loop) fire(a alarm, now time.Time) {
	c := l.find(a.conn)
	if c == nil {
		return
	}
	c.mu.Lock()
	due := c.takeAlarm(a.at, now)
	switch {
	case due:
		c.state.kicked = true // the loop looks anyhow
	case !c.state.closed:
		l.schedule(c)
	}
	c.mu.Unlock()
	if due {
		c.onTimer()
		l.touch(c)
	}
}
