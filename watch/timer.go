// SPDX-License-Identifier: MIT

package watch

import (
	"math"
	"time"
)

// Timer calls a function once, at the time for which it is set, on the goroutine that runs
// its [Loop]. It belongs to the loop: Reset, Stop and Active are for the loop's
// callbacks, or for times when the loop does not run.
type Timer struct {
	l     *Loop
	f     func()
	index int // in the heap, -1 when it is not set
}

// NewTimer returns a timer that is not set. It can be set and stopped any number of
// times without allocating, so one timer is enough for the timeouts of a connection.
func (l *Loop) NewTimer(f func()) *Timer { return &Timer{l: l, f: f, index: -1} }

// AfterFunc returns a timer that is set to call f after d.
func (l *Loop) AfterFunc(d time.Duration, f func()) *Timer {
	t := l.NewTimer(f)
	t.Reset(d)
	return t
}

// Reset sets the timer to d from now, and reports whether it was set before. Timers
// fire in the order of their times; timers with the same time fire in the order in
// which they were set. A timer never fires early, and fires at most once for each
// Reset. If a callback sets a timer to the past or to now, the timer fires in the next
// turn. Reset costs O(log n) for n timers that are set.
//
// On a closed loop it does nothing.
func (t *Timer) Reset(d time.Duration) bool {
	if t.l.closed() {
		return false
	}
	at := t.l.now()
	if d = max(d, 0); d > math.MaxInt64-at {
		d = math.MaxInt64 - at
	}
	was := t.Stop()
	t.l.seq++
	t.l.timers.push(due{at + d, t.l.seq, t})
	return was
}

// Stop unsets the timer and reports whether it was set: the function is not called
// after Stop has returned. Stop costs O(log n) for n timers that are set.
func (t *Timer) Stop() bool {
	if t.index < 0 {
		return false
	}
	t.l.timers.remove(t.index)
	return true
}

// Active reports whether the timer is set. It is not set while its function runs,
// unless the function sets it again.
func (t *Timer) Active() bool { return t.index >= 0 }

// fire calls the functions of due timers and returns their number. Timers that these
// functions set are left for the next turn.
func (l *Loop) fire() int {
	if len(l.timers) == 0 {
		return 0
	}
	now, last, n := l.now(), l.seq, 0
	for len(l.timers) > 0 && !l.closed() {
		first := l.timers[0]
		if first.at > now || first.seq > last {
			break
		}
		l.timers.remove(0)
		n++
		first.t.f()
	}
	return n
}

// due is when a timer is called. seq numbers calls of Reset.
type due struct {
	at  time.Duration // since the loop was made
	seq uint64
	t   *Timer
}

func (d *due) before(e *due) bool {
	return d.at < e.at || d.at == e.at && d.seq < e.seq
}

// dueHeap is a binary heap, the earliest first, whose timers know their places.
type dueHeap []due

func (h *dueHeap) push(d due) {
	*h = append(*h, d)
	h.up(len(*h) - 1)
}

func (h *dueHeap) remove(i int) {
	s := *h
	s[i].t.index = -1
	n := len(s) - 1
	moved := s[n]
	s[n] = due{}
	*h = s[:n]
	if i == n {
		return
	}
	s[i] = moved
	h.down(i)
	h.up(moved.t.index)
}

// up moves the element at i up to its place.
func (h dueHeap) up(i int) {
	d := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !d.before(&h[parent]) {
			break
		}
		h.set(i, h[parent])
		i = parent
	}
	h.set(i, d)
}

// down moves the element at i down to its place.
func (h dueHeap) down(i int) {
	d := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if !h[child].before(&d) {
			break
		}
		h.set(i, h[child])
		i = child
	}
	h.set(i, d)
}

func (h dueHeap) set(i int, d due) {
	h[i] = d
	d.t.index = i
}
