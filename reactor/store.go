// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// bufRing is what a store needs of a ring of provided buffers.
type bufRing interface {
	Recycle(id uint16)
	Publish()
	Take(uring.CQE) (data []byte, done bool)
	TakeBundle(c uring.CQE, yield func(id uint16, data []byte, done bool))
	Close() error
}

// provider is a ring that can have provided buffers.
type provider interface {
	provide(uring.BufRingOptions) (bufRing, error)
}

// store is the part of a group that one loop has.
type store struct {
	loop  *loop
	group *BufferGroup
	mem   []byte // stays reachable as long as the kernel may write to it

	// mu comes after the loop's.
	mu      sync.Mutex
	ring    bufRing       // nil when closed
	free    int           // buffers that the kernel has
	lent    []lent        // by the buffer's number
	waiting []inflight.ID // streams that found no buffer, some of which may be over

	key   shadowKey
	taken []Chunk // of the reaper
	yield func(id uint16, data []byte, done bool)
}

// lent is a buffer's state.
type lent struct {
	pieces int32  // that were handed out and have not come back
	spent  bool   // the kernel is done with it
	use    uint32 // changes when the kernel gets it back
}

// openStore registers a loop's part of a group.
func (l *loop) openStore(g *BufferGroup, o BufferGroupOptions) (*store, error) {
	s := &store{loop: l, group: g}
	s.yield = func(id uint16, data []byte, done bool) {
		s.taken = append(s.taken, s.lend(id, data, done))
	}
	err := l.onRing(func(r ring) error { return s.open(r, o) })
	switch {
	case err == nil, err == ErrClosed:
		return s, err
	case errors.Is(err, syscall.EINVAL):
		return nil, fmt.Errorf("reactor: buffer rings need Linux 5.19: %w (%w)", errors.ErrUnsupported, err)
	}
	return nil, fmt.Errorf("reactor: buffer group: %w", err)
}

// open registers as many buffers as are wanted, or fewer where the kernel says
// that it is too much.
func (s *store) open(r ring, o BufferGroupOptions) error {
	for {
		s.mem = make([]byte, o.Buffers*o.BufferSize)
		var err error
		s.ring, err = r.(provider).provide(uring.BufRingOptions{
			Group: s.group.id, Entries: o.Buffers, BufferSize: o.BufferSize, Memory: s.mem, Incremental: o.Incremental})
		switch {
		case err == nil:
			s.free, s.lent = o.Buffers, make([]lent, o.Buffers)
			s.loop.mu.Lock()
			s.loop.stores = append(s.loop.stores, s)
			s.loop.mu.Unlock()
			return nil
		case o.Incremental && errors.Is(err, syscall.EINVAL):
			o.Incremental = false
		case errors.Is(err, syscall.ENOMEM) && o.Buffers > fewestBuffers:
			o.Buffers /= 2
		default:
			return err
		}
	}
}

// close takes the buffers away from the kernel, unless the ring is gone.
func (s *store) close() error {
	err := s.loop.onRing(func(ring) error {
		s.loop.mu.Lock()
		s.loop.stores = slices.DeleteFunc(s.loop.stores, func(o *store) bool { return o == s })
		s.loop.mu.Unlock()
		if b := s.shut(); b != nil {
			return b.Close()
		}
		return nil
	})
	if err == ErrClosed {
		return nil
	}
	return err
}

// shut makes what comes back stay here, and returns the ring of buffers.
func (s *store) shut() bufRing {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.ring
	s.ring = nil
	return b
}

// take returns the pieces of buffers that a completion hands over, until the
// next call. Only who reaps calls it.
func (s *store) take(c uring.CQE, bundle bool) []Chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.taken)
	s.taken = s.taken[:0]
	switch {
	case s.ring == nil || !c.Has(uring.CQEBuffer):
	case bundle && c.Res > 0:
		s.ring.TakeBundle(c, s.yield)
	default:
		data, done := s.ring.Take(c)
		s.yield(c.BufferID(), data, done)
	}
	return s.taken
}

// lend notes that a piece of a buffer is handed out. The caller holds mu.
func (s *store) lend(id uint16, data []byte, done bool) Chunk {
	s.gave()
	b := &s.lent[id]
	b.pieces++
	if done {
		b.spent = true
		s.free--
	}
	return Chunk{Data: data, store: s, id: id, use: b.use}
}

// giveBack takes a piece back and reports whether streams wait for buffers.
func (s *store) giveBack(id uint16, use uint32) (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ring == nil {
		return false
	}
	b := &s.lent[id]
	if b.use != use || b.pieces == 0 {
		panic("reactor: a chunk was released twice")
	}
	if b.pieces--; b.pieces > 0 || !b.spent {
		return false
	}
	b.spent = false
	b.use++
	s.tookBack(id)
	s.ring.Recycle(id)
	s.ring.Publish()
	s.free++
	s.loop.stats.refills.Add(1)
	return len(s.waiting) > 0
}

// wake starts the streams again that wait for buffers.
func (s *store) wake() {
	l := s.loop
	l.mu.Lock()
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, id := range waiting {
		if v := l.table.Lookup(id); v != nil && l.unpark(v, id) {
			l.leaveChore(chore{id: id})
		}
	}
	l.mu.Unlock()
	l.catchUp()
}

// rest lets a stream that found no buffer wait for one, or start again when
// there is one by now. False says that it was cancelled meanwhile. The caller
// holds reaping.
func (l *loop) rest(s *slot) bool {
	l.stats.starved.Add(1)
	v, id := &s.Value, s.ID()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case v.asked(id):
		v.res = Result{Res: -int32(syscall.ECANCELED)}
		if l.closing {
			v.res.Cause = ErrClosed
		}
		return false
	case l.failed != nil:
		v.res = Result{Cause: l.failed}
		return false
	}
	st := v.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.free > 0 {
		l.leaveChore(chore{id: id})
		return true
	}
	v.parked.Store(uint64(id))
	st.waiting = append(st.waiting, id)
	return true
}

// unpark reports whether a stream, which may be over, waits for buffers: then the
// kernel does not have it, and it is the caller's. The caller holds mu.
func (l *loop) unpark(s *slot, id inflight.ID) bool {
	return s.Value.parked.CompareAndSwap(uint64(id), 0)
}

// endParked ends a stream that unpark has handed over. The caller holds mu.
func (l *loop) endParked(s *slot, err error) {
	l.end(s, Result{Res: -int32(syscall.ECANCELED), Cause: err})
	l.calls.kick()
	l.wakeLocked()
}

// failParkedStreams ends the streams that wait for buffers after the ring has
// failed. The caller holds mu.
func (l *loop) failParkedStreams() {
	for _, st := range l.stores {
		st.mu.Lock()
		waiting := st.waiting
		st.waiting = nil
		st.mu.Unlock()
		for _, id := range waiting {
			if s := l.table.Lookup(id); s != nil && l.unpark(s, id) {
				l.end(s, Result{Cause: l.failed})
			}
		}
	}
}
