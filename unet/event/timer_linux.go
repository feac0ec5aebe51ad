// SPDX-License-Identifier: MIT

package event

import "time"

// timerHeap holds the connections whose timer is set, in the order in which the
// loop looks at them, which is not later than they are due: a timer that moves to
// a later time stays where it is, and moves when the loop looks. Each connection
// knows its place, and leaves when it is closed.
type timerHeap []timerEntry

type timerEntry struct {
	at time.Time
	c  *Conn
}

// set adds a connection, or moves it.
func (h *timerHeap) set(c *Conn, at time.Time) {
	if c.link.timerAt == 0 {
		*h = append(*h, timerEntry{at, c})
		c.link.timerAt = len(*h)
	}
	i := c.link.timerAt - 1
	(*h)[i].at = at
	h.fix(i)
}

// remove removes a connection, if it is there.
func (h *timerHeap) remove(c *Conn) {
	i := c.link.timerAt - 1
	if i < 0 {
		return
	}
	s := *h
	n := len(s) - 1
	s[i] = s[n]
	s[i].c.link.timerAt = i + 1
	s[n], c.link.timerAt = timerEntry{}, 0
	*h = s[:n]
	if i < n {
		h.fix(i)
	}
}

// fix moves the entry at i to its place.
func (h timerHeap) fix(i int) {
	e := h[i]
	for i > 0 {
		up := (i - 1) / 2
		if !e.at.Before(h[up].at) {
			break
		}
		h.put(i, h[up])
		i = up
	}
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].at.Before(h[down].at) {
			down++
		}
		if !h[down].at.Before(e.at) {
			break
		}
		h.put(i, h[down])
		i = down
	}
	h.put(i, e)
}

func (h timerHeap) put(i int, e timerEntry) {
	h[i] = e
	e.c.link.timerAt = i + 1
}

// schedule sets an alarm for the timer of a connection, which has changed. The
// caller holds the connection's mutex.
func (l *loop) schedule(c *Conn) {
	c.state.timer = false
	if c.expiry.IsZero() || c.link.covers(c.expiry) {
		return
	}
	c.link.wakeAt = c.expiry
	l.timers.set(c, c.expiry)
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
		l.fire(l.timers[0], now)
	}
	return true
}

// fire handles a connection at which the loop was to look: the timer may have been
// stopped, or moved.
func (l *loop) fire(e timerEntry, now time.Time) {
	c := e.c
	c.mu.Lock()
	l.timers.remove(c)
	due := c.takeAlarm(e.at, now)
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
