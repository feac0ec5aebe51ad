// SPDX-License-Identifier: MIT

package watch

import "github.com/ringside-io/ringside/internal/sys"

// hotList is the descriptors of Level whose state was reported in the last turn
// and may last. Their polls, which are multishot, tell about what is new only,
// so poll(2) is asked about the rest: one call for all of them costs less than
// arming each again. Its answer is newer than the completions before it, and
// replaces them: so Level does not report what the caller has served meanwhile.
//
// A descriptor that stays ready for lastingTurns is disarmed, and poll(2) alone
// answers for it until it is not ready: otherwise its own wake-ups would look like
// events of others, and every turn would enter the ring as well.
//
// The turn's goroutine owns the list.
type hotList struct {
	fds      []sys.PollFD
	gens     []uint32
	asked    int     // how many of them poll(2) has answered for
	quiet    bool    // none was ready when the wait began to sleep
	disarmed int     // how many of them have no poll with the kernel
	lasting  []int32 // to be disarmed
}

// lastingTurns is how many turns in a row a descriptor has to be ready for its
// poll to be disarmed, which takes two entries of the ring.
const lastingTurns = 8

// take takes over what was served.
func (h *hotList) take(t *table) {
	for _, fd := range t.served {
		if e := t.at(int(fd)); e != nil && e.mode == Level && !e.hot {
			e.hot = true
			if !e.armed {
				h.disarmed++
			}
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
		found := Events(uint16(h.fds[seen].Revents))
		if found == 0 {
			continue
		}
		n++
		fd := h.fds[seen].Fd
		e := t.report(fd, h.gens[seen], found)
		switch {
		case e == nil:
		case found&notOpen != 0 || e.recheck() && moved(fd, e):
			e.gone, e.found = true, 0
		case !e.armed:
		case e.streak < lastingTurns:
			e.streak++
		default:
			h.lasting = append(h.lasting, fd)
		}
	}
	h.asked = 0
	return seen
}

// notOpen is what poll(2) answers for a number that is not open (POLLNVAL).
const notOpen Events = 0x020

// settle forgets the first n. Their completions count again: those that are not
// ready any more are armed where they are not.
func (h *hotList) settle(t *table, n int) {
	if n == 0 {
		return
	}
	for i, fd := range h.fds[:n] {
		e := t.at(int(fd.Fd))
		if e == nil || e.gen != h.gens[i] {
			continue
		}
		e.hot = false
		if e.found != 0 || e.gone {
			continue
		}
		e.streak = 0
		if e.armed || e.queued {
			continue
		}
		if moved(fd.Fd, e) {
			e.gone = true
		} else {
			t.change(fd.Fd, e)
		}
	}
	h.fds = append(h.fds[:0], h.fds[n:]...)
	h.gens = append(h.gens[:0], h.gens[n:]...)
	h.disarmed = 0
	for _, fd := range h.fds {
		if e := t.at(int(fd.Fd)); e != nil && !e.armed {
			h.disarmed++
		}
	}
}

// disarmLasting ends the polls of descriptors that stay ready.
func (b *ringBackend) disarmLasting() {
	for _, fd := range b.hot.lasting {
		if e := b.t.at(int(fd)); e != nil && e.armed {
			b.cancels = append(b.cancels, userData(fd, e.gen))
			e.armed = false
			e.turn()
		}
	}
	b.hot.lasting = b.hot.lasting[:0]
}

// clear empties the list of a ring that is gone, whose entries have all turned.
func (h *hotList) clear() { *h = hotList{fds: h.fds[:0], gens: h.gens[:0]} }

// moved reports whether the number of a registration means another file by now,
// or none: poll(2) answers for that one. Files without an inode of their own are
// not told apart.
func moved(fd int32, e *entry) bool {
	_, id, errno := sys.FileMode(int(fd))
	return errno != 0 || id != e.file
}
