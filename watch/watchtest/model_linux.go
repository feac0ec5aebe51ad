// SPDX-License-Identifier: MIT

package watchtest

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/watch"
)

// seeds runs sequences of changes, each determined by its seed, and compares the
// reports with a model.
func seeds(t *testing.T, open func() (Watcher, error)) {
	n, steps := 40, 400
	if short() {
		n, steps = 5, 200
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			on(func(r *rig) {
				m := &model{rig: r, rng: rand.New(rand.NewPCG(uint64(seed), 5))}
				m.run(steps)
			})(t, open)
		})
	}
}

// model has the events that a watcher must report, and the events that it may report.
type model struct {
	*rig
	rng   *rand.Rand
	ends  []*end
	value int
	log   []string
}

// end is one end of a pair of sockets, or of a pipe.
type end struct {
	fd, peer int
	peerGone bool

	on       bool
	interest watch.Events
	mode     watch.Trigger
	value    int

	// must is the set of events that have to be reported before the watcher may be
	// quiet. may is true when an event may be reported.
	must  watch.Events
	may   bool
	spent bool // OneShot
	turns int  // that have passed with something missing
}

// turnsToReport is the number of turns within which a ready descriptor is reported.
const turnsToReport = 2

func (m *model) run(steps int) {
	for range 5 {
		m.ends = append(m.ends, m.open())
	}
	for range steps {
		m.step(m.ends[m.rng.IntN(len(m.ends))])
		if m.rng.IntN(3) == 0 {
			m.settle()
		}
		if m.Failed() {
			for _, line := range m.log[max(len(m.log)-40, 0):] {
				m.Log(line)
			}
			m.FailNow()
		}
	}
	m.settle()
}

func (m *model) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *model) open() *end {
	a, b := m.connected()
	return &end{fd: a, peer: b}
}

// connected opens a pair of sockets or a pipe, of which the reading end is watched.
func (m *model) connected() (watched, peer int) {
	if m.rng.IntN(3) == 0 {
		return m.pipe()
	}
	return m.pair()
}

// step makes one change.
func (m *model) step(e *end) {
	switch m.rng.IntN(10) {
	case 0, 1:
		m.register(e)
	case 2:
		m.unregister(e)
	case 3, 4, 5:
		m.arrive(e)
	case 6, 7:
		m.serve(e)
	case 8:
		m.reopen(e)
	case 9:
		if m.rng.IntN(4) == 0 {
			m.hangUp(e)
		}
	}
}

// register adds or modifies.
func (m *model) register(e *end) {
	all := []watch.Events{watch.Read, watch.Write, watch.PeerHangUp}
	e.interest = 0
	for _, ev := range all {
		if m.rng.IntN(2) == 0 {
			e.interest |= ev
		}
	}
	e.mode = everyMode[m.rng.IntN(3)]
	m.value++
	e.value = m.value
	if e.on {
		m.note("modify %d for %v, %v, as %d", e.fd, e.interest, e.mode, e.value)
		m.ok(m.w.Modify(e.fd, e.interest, e.mode, e.value))
	} else {
		m.note("add %d for %v, %v, as %d", e.fd, e.interest, e.mode, e.value)
		m.ok(m.w.Add(e.fd, e.interest, e.mode, e.value))
	}
	e.on, e.spent, e.may, e.turns = true, false, true, 0
	e.must = m.state(e)
}

func (m *model) unregister(e *end) {
	m.note("remove %d, which is registered: %v", e.fd, e.on)
	err := m.w.Remove(e.fd)
	if !e.on {
		m.want(err, syscall.ENOENT)
		return
	}
	m.ok(err)
	e.on = false
}

// arrive brings input.
func (m *model) arrive(e *end) {
	if e.peerGone {
		return
	}
	m.note("input for %d", e.fd)
	write(m.rig, e.peer, "x")
	e.may = true
	e.must |= m.state(e) & watch.Read
}

// serve reads all input of both ends.
func (m *model) serve(e *end) {
	m.note("serve %d", e.fd)
	m.drain(e.fd)
	if !e.peerGone {
		m.drain(e.peer)
	}
	e.may = true // reading makes room for writing at the other end
	e.must &= m.state(e)
}

// reopen closes both ends and opens others, the watched one under the same
// number, before or after it is removed.
func (m *model) reopen(e *end) {
	m.note("reopen %d", e.fd)
	early := m.rng.IntN(2) == 0
	if e.on && early {
		m.ok(m.w.Remove(e.fd))
	}
	a, b := m.connected()
	m.replace(e.fd, a)
	if !e.peerGone {
		m.shut(e.peer)
	}
	if e.on && !early {
		m.ok(m.w.Remove(e.fd))
	}
	*e = end{fd: e.fd, peer: b}
}

func (m *model) hangUp(e *end) {
	if e.peerGone {
		return
	}
	m.note("hang up on %d", e.fd)
	m.shut(e.peer)
	e.peerGone, e.may = true, true
	e.must = m.state(e)
}

// state asks the kernel which events of an end could be reported.
func (m *model) state(e *end) watch.Events {
	asked := e.interest | watch.Error | watch.HangUp
	fds := []sys.PollFD{{Fd: int32(e.fd), Events: int16(asked)}}
	for {
		_, errno := sys.PollNow(fds)
		if errno == 0 {
			break
		}
		if errno != syscall.EINTR {
			m.Fatal(errno)
		}
	}
	return watch.Events(uint16(fds[0].Revents)) & asked
}

// settle makes turns until all required events have been reported, and a few more.
func (m *model) settle() {
	m.note("settle")
	for i := range m.ends {
		if e := m.ends[i]; e.on && e.mode == watch.Level {
			e.must = m.state(e)
		}
	}
	const turns = 100
	calm, changes := 0, m.rng.IntN(4)
	for range turns {
		_, err := m.w.Poll(0, func(ev watch.Event) {
			m.reported(ev)
			if changes > 0 && m.rng.IntN(2) == 0 {
				changes--
				m.change()
				calm = -1
			}
		})
		m.ok(err)
		for _, e := range m.ends {
			m.late(e)
		}
		if m.Failed() {
			return
		}
		if m.missing() == nil {
			if calm++; calm == quietTurns {
				break
			}
		}
	}
	if e := m.missing(); e != nil {
		m.Errorf("%v of %d (%v, %v) was not reported; its state is %v", e.must, e.fd, e.interest, e.mode, m.state(e))
	}
	for _, e := range m.ends {
		e.may = false // all earlier events are settled
	}
}

// change makes a change in a callback, to the end that is reported or to any other.
func (m *model) change() {
	e := m.ends[m.rng.IntN(len(m.ends))]
	m.note("in the callback:")
	m.step(e)
	e.turns = -1 // the turn in progress may have been too early to find it
}

// late counts the turns in which a report of an end is missing.
func (m *model) late(e *end) {
	if !e.on || e.spent || e.must == 0 {
		e.turns = 0
		return
	}
	if e.turns++; e.turns >= turnsToReport {
		m.Errorf("%v of %d (%v, %v) was not reported in %d turns", e.must, e.fd, e.interest, e.mode, e.turns)
	}
}

func (m *model) missing() *end {
	for _, e := range m.ends {
		if e.on && !e.spent && e.must != 0 {
			return e
		}
	}
	return nil
}

// reported checks one report.
func (m *model) reported(ev watch.Event) {
	m.note("report %+v", ev)
	for _, e := range m.ends {
		if e.fd != ev.FD {
			continue
		}
		state := m.state(e)
		switch {
		case !e.on:
			m.Errorf("%d was reported and is not registered", e.fd)
		case ev.Value != e.value:
			m.Errorf("%d was reported as %v, want %d", e.fd, ev.Value, e.value)
		case e.spent:
			m.Errorf("%d was reported twice, and is OneShot", e.fd)
		case ev.Events&^(e.interest|watch.Error|watch.HangUp) != 0 || ev.Events == 0:
			m.Errorf("%d was reported for %v, asked were %v", e.fd, ev.Events, e.interest)
		case e.mode != watch.Edge && !e.may && ev.Events&^state != 0:
			m.Errorf("%v of %d was reported, its state is %v", ev.Events, e.fd, state)
		case e.mode == watch.Edge && !e.may:
			m.Errorf("%v of %d was reported again, and is Edge", ev.Events, e.fd)
		}
		e.must &^= ev.Events
		if e.mode == watch.OneShot {
			e.spent, e.must = true, 0
		}
		return
	}
	m.Errorf("%d was reported, which is not registered", ev.FD)
}
