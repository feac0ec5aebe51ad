// SPDX-License-Identifier: MIT

package watch

import "github.com/ringside-io/ringside/internal/sys"

// hotList is the descriptors of Level whose state was reported in the last turn
// and may last. Their polls, which are multishot, tell about what is new only,
// so poll(2) is asked about the rest: one call for all of them costs less than
// arming each again. What it answers is newer than the completions before it, and
// replaces them: so Level does not report what the caller has served meanwhile.
// The turn's goroutine owns the list.
type hotList struct {
	fds   []sys.PollFD
	gens  []uint32
	asked int  // how many of them poll(2) has answered for
	quiet bool // none was ready when the wait began to sleep
}

// take takes over what was served.
func (h *hotList) take(t *table) {
	for _, fd := range t.served {
		if e := t.at(int(fd)); e != nil && e.mode == Level && !e.hot {
			e.hot = true
			h.fds = append(h.fds, sys.PollFD{Fd: fd, Events: int16(e.interest)})
			h.gens = append(h.gens, e.gen)
		}
	}
	t.served = t.served[:0]
}

// ask asks about all that are listed and returns how many are ready.
func (h *hotList) ask() int {
	if len(h.fds) == 0 {
		return 0
	}
	n, errno := sys.PollNow(h.fds)
	if errno != 0 { // no memory, or a signal: look again next turn
		h.asked = 0
		return 1
	}
	h.asked = len(h.fds)
	return n
}

// report reports up to most of those that are ready, and returns how many it has
// gone through for that, which settle then forgets.
func (h *hotList) report(t *table, most int) int {
	seen := 0
	for n := 0; seen < h.asked && n < most; seen++ {
		if found := Events(uint16(h.fds[seen].Revents)); found != 0 {
			t.report(h.fds[seen].Fd, h.gens[seen], found)
			n++
		}
	}
	h.asked = 0
	return seen
}

// settle forgets the first n: their completions count again.
func (h *hotList) settle(t *table, n int) {
	if n == 0 {
		return
	}
	for i, fd := range h.fds[:n] {
		if e := t.at(int(fd.Fd)); e != nil && e.gen == h.gens[i] {
			e.hot = false
		}
	}
	h.fds = append(h.fds[:0], h.fds[n:]...)
	h.gens = append(h.gens[:0], h.gens[n:]...)
}

// clear empties the list of a ring that is gone, whose entries have all turned.
func (h *hotList) clear() { *h = hotList{fds: h.fds[:0], gens: h.gens[:0]} }
