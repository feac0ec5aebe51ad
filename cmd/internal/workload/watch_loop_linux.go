// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/ringside-io/ringside/watch"
)

// watchLoop is the loop of one watcher. It belongs to one goroutine.
type watchLoop struct {
	watcher *watch.Watcher
	signal  []int // written in each round
	reply   bool  // send back what was read
	oneShot bool
	events  int // per round

	found func(watch.Event)
	got   int // events not yet counted in a round
	err   error
	io    messages
}

// round polls until a whole round of events has arrived.
func (l *watchLoop) round() error {
	if err := l.io.writeTo(l.signal); err != nil {
		return err
	}
	for l.got < l.events {
		if _, err := l.watcher.Poll(-1, l.found); err != nil {
			return err
		}
		if l.err != nil {
			return l.err
		}
	}
	l.got -= l.events // Some replies may already belong to the next round.
	return nil
}

// answer reads the descriptor of an event. A spurious event (EAGAIN) does not count.
func (l *watchLoop) answer(e watch.Event) {
	if err := l.io.read(e.FD); err != nil {
		if !errors.Is(err, syscall.EAGAIN) {
			l.err = err
		}
		return
	}
	l.got++
	if l.oneShot {
		if err := l.watcher.Modify(e.FD, watch.Read, watch.OneShot, nil); err != nil {
			l.err = err
		}
	}
	if l.reply {
		if err := l.io.write(e.FD); err != nil {
			l.err = err
		}
	}
}

// floor returns a function that does the writes and reads of a round on unwatched descriptors.
func (s *watchSet) floor(w Watch) func() error {
	io := &messages{}
	if w.Source == SourceEventFD {
		return func() error { return errors.Join(io.writeTo(s.bare), io.readFrom(s.bare)) }
	}
	// The two ends of each pair alternate, so that the bytes have arrived when they are read.
	side, other := firstEnds(s.bare), firstEnds(s.bare[1:])
	started := false
	return func() error {
		if !started {
			started = true
			if err := io.writeTo(side); err != nil {
				return err
			}
		}
		side, other = other, side
		return io.bounce(side)
	}
}

// firstEnds returns every other descriptor, from the first.
func firstEnds(fds []int) []int {
	var out []int
	for i := 0; i < len(fds); i += 2 {
		out = append(out, fds[i])
	}
	return out
}

// messages writes and reads messages of 8 bytes, the size that an eventfd requires. The system
// calls never block. They bypass the scheduler, which would cost as much as the calls.
type messages struct{ out, in [8]byte }

func (m *messages) write(fd int) error {
	m.out[0] = 1
	return eight(syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&m.out)), 8))
}

func (m *messages) read(fd int) error {
	return eight(syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&m.in)), 8))
}

func eight(n, _ uintptr, errno syscall.Errno) error {
	switch {
	case errno != 0:
		return errno
	case n != 8:
		return errShortMessage
	}
	return nil
}

var errShortMessage = errors.New("a message was sent or received in part")

func (m *messages) writeTo(fds []int) error {
	for _, fd := range fds {
		if err := m.write(fd); err != nil {
			return err
		}
	}
	return nil
}

func (m *messages) readFrom(fds []int) error {
	for _, fd := range fds {
		if err := m.read(fd); err != nil {
			return err
		}
	}
	return nil
}

// bounce reads from each descriptor and writes the message back.
func (m *messages) bounce(fds []int) error {
	for _, fd := range fds {
		if err := m.read(fd); err != nil {
			return err
		}
		if err := m.write(fd); err != nil {
			return err
		}
	}
	return nil
}
