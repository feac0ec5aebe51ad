// SPDX-License-Identifier: MIT

package event

import (
	"time"
)

// timerHeap is a heap of the connections whose timer is set, ordered by alarm. An alarm
// is never later than its timer: extending a timer does not move its alarm, and fire
// sets a new one. Each connection has its index, and is removed when it is closed. The heap of package
// watch is another: one for both would compare by indirect calls, which takes twice the time.
type timerHeap []timerEntry

type timerEntry struct {
	at time.Time
	c  *Conn
}

// set adds a connection, or moves it.
func (h *timerHeap) set(c *Conn, at time.Time) {
	if c.bstate.timerAt == 0 {
		*h = append(*h, timerEntry{at, c})
		c.bstate.timerAt = int32(len(*h))
	}
	i := int(c.bstate.timerAt) - 1
	(*h)[i].at = at
	h.fix(i)
}

// remove removes a connection, if it is in the heap.
func (h *timerHeap) remove(c *Conn) {
	i := int(c.bstate.timerAt) - 1
	if i < 0 {
		return
	}
	s := *h
	n := len(s) - 1
	s[i] = s[n]
	s[i].c.bstate.timerAt = int32(i + 1)
	s[n], c.bstate.timerAt = timerEntry{}, 0
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
	e.c.bstate.timerAt = int32(i + 1)
}

// schedule sets an alarm for the timer of a connection, which has changed. The
// caller holds the connection's mutex.
func (l *loop) schedule(c *Conn) {
	c.state.timer = false
	if c.expiry.IsZero() || c.bstate.covers(c.expiry) {
		return
	}
	c.bstate.wakeAt = c.expiry
	l.timers.set(c, c.expiry)
}

// delay makes the loop call f after a pause. f calls no callback.
func (l *loop) delay(f func()) {
	if len(l.delayed) == 0 {
		l.delayAt = time.Now().Add(retryPause)
	}
	l.delayed = append(l.delayed, f)
}

// nextTimer returns when the loop has to wake up, zero for never.
func (l *loop) nextTimer() time.Time {
	at := l.retryAt
	for _, a := range [...]time.Time{l.listen.retryAt, l.delayAt} {
		if !a.IsZero() && (at.IsZero() || a.Before(at)) {
			at = a
		}
	}
	if len(l.timers) > 0 && (at.IsZero() || l.timers[0].at.Before(at)) {
		at = l.timers[0].at
	}
	return at
}

// fireTimers handles the due alarms and reports whether there were any.
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
	if !l.delayAt.IsZero() && !now.Before(l.delayAt) {
		due := l.delayed
		l.delayed, l.delayAt = nil, time.Time{}
		for _, f := range due {
			f()
		}
	}
	for len(l.timers) > 0 && !now.Before(l.timers[0].at) {
		l.fire(l.timers[0], now)
	}
	return true
}

// fire handles a due alarm. The timer may have been stopped, or set to a later time.
func (l *loop) fire(e timerEntry, now time.Time) {
	c := e.c
	c.mu.Lock()
	l.timers.remove(c)
	due := c.takeAlarm(e.at, now)
	switch {
	case due:
		c.state.notified = true // the loop processes it in any case
	case !c.state.closed:
		l.schedule(c)
	}
	c.mu.Unlock()
	if due {
		c.onTimer()
		l.markDirty(c)
	}
}
