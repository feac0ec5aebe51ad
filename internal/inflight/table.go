// SPDX-License-Identifier: MIT

package inflight

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// ID names one use of a slot: the index in the low 32 bits, the generation in the high
// ones. The zero ID names no slot.
type ID uint64

func (id ID) index() uint32      { return uint32(id) }
func (id ID) generation() uint32 { return uint32(id >> 32) }

// maxGeneration keeps generations positive and the two highest bits of every ID
// 0, which leaves user data for other purposes.
const maxGeneration = 1 << 30

const (
	chunkSize = 64
	maxChunks = 1 << 10
	// MaxSlots is the largest capacity of a table.
	MaxSlots = chunkSize * maxChunks
)

// Table holds slots with a value of type T each. It grows in chunks up to its
// capacity and never shrinks. All methods may be called concurrently.
type Table[T any] struct {
	free   atomic.Uint64 // tag in the high half, index + 1 of the first free slot in the low one
	chunks [maxChunks]atomic.Pointer[[chunkSize]Slot[T]]
	held   atomic.Int64

	mu    sync.Mutex // growing
	grown int
	max   int
	init  func(*T)
}

// Slot states; see the package comment.
const (
	stateFree uint32 = iota
	stateAcquired
	stateHeld
	stateDone
	stateAbandoned
)

// Slot is one entry of a table. Only the holder of the slot may use Value.
type Slot[T any] struct {
	Value T

	index uint32
	gen   atomic.Uint32
	state atomic.Uint32
	next  atomic.Uint32 // index + 1 of the next free slot
}

// New returns a table of at most max slots, up to [MaxSlots]; init prepares a
// value once, when its chunk is made, and may be nil.
func New[T any](max int, init func(*T)) *Table[T] {
	return &Table[T]{max: min(max, MaxSlots), init: init}
}

// Acquire takes a free slot; false means that all are in use.
func (t *Table[T]) Acquire() (*Slot[T], bool) {
	for {
		if s := t.pop(); s != nil {
			if !s.state.CompareAndSwap(stateFree, stateAcquired) {
				panic(fmt.Sprintf("inflight: slot %d was on the free list in state %d", s.index, s.state.Load()))
			}
			t.held.Add(1)
			return s, true
		}
		if !t.grow() {
			return nil, false
		}
	}
}

// Arm hands the slot to its operation: Value is filled, and Lookup finds the slot from now
// on. Arm orders the caller's use of Value before the use by a goroutine that looks the
// slot up, because the race detector does not see the order that the kernel ensures. An
// operation that is submitted again is armed again.
func (s *Slot[T]) Arm() {
	if old := s.state.Swap(stateHeld); old != stateAcquired && old != stateHeld {
		panic(fmt.Sprintf("inflight: slot %d armed in state %d", s.index, old))
	}
}

// Release frees a slot. Before it, the holder must clear the references in Value that
// should not stay reachable. Releasing a slot twice panics.
func (t *Table[T]) Release(s *Slot[T]) {
	if gen := s.gen.Add(1); gen >= maxGeneration {
		s.gen.Store(1)
	}
	if s.state.Swap(stateFree) == stateFree {
		panic(fmt.Sprintf("inflight: slot %d released twice", s.index))
	}
	t.held.Add(-1)
	t.push(s)
}

// Held returns the number of slots in use.
func (t *Table[T]) Held() int { return int(t.held.Load()) }

// ID returns the name of the current use of s.
func (s *Slot[T]) ID() ID {
	return ID(s.gen.Load())<<32 | ID(s.index)
}

// Lookup returns the slot of an armed ID. It returns nil when that use has completed, even
// if the slot was not released yet. Only the caller that completes the slot may rely on it:
// for others it may have been released, and used again, when Lookup returns.
func (t *Table[T]) Lookup(id ID) *Slot[T] {
	i := id.index()
	if i >= MaxSlots {
		return nil
	}
	chunk := t.chunks[i/chunkSize].Load()
	if chunk == nil {
		return nil
	}
	s := &chunk[i%chunkSize]
	// The order matters. id was armed before, so the state belongs to that use or to a
	// later one; the generation distinguishes them. In the opposite order, the slot
	// could be used again between the two reads.
	if !s.alive() || s.gen.Load() != id.generation() {
		return nil
	}
	return s
}

// alive reports whether the kernel may still use the slot's resources.
func (s *Slot[T]) alive() bool {
	state := s.state.Load()
	return state == stateHeld || state == stateAbandoned
}

// Complete marks the slot as done: the kernel no longer uses it. It returns true when a
// goroutine waits, which then takes the result and releases the slot. It returns false
// when the slot was abandoned: the caller must release it. Completing a slot twice
// panics: it would be a defect of the kernel or of this module.
func (s *Slot[T]) Complete() (waited bool) {
	switch {
	case s.state.CompareAndSwap(stateHeld, stateDone):
		return true
	case s.state.Load() == stateAbandoned:
		return false
	}
	panic(fmt.Sprintf("inflight: slot %d completed in state %d", s.index, s.state.Load()))
}

// Abandon marks the slot as having no waiter. It returns false when the operation
// is already done: the result can be taken.
func (s *Slot[T]) Abandon() bool { return s.state.CompareAndSwap(stateHeld, stateAbandoned) }

// Each calls f for every slot that is armed and has not completed. It is meant for
// shutdown, when no further slot is armed. Slots that complete meanwhile may or may not
// be visited.
func (t *Table[T]) Each(f func(*Slot[T])) {
	for c := range t.chunks {
		chunk := t.chunks[c].Load()
		if chunk == nil {
			return
		}
		for i := range chunk {
			if chunk[i].alive() {
				f(&chunk[i])
			}
		}
	}
}

func (t *Table[T]) slot(i uint32) *Slot[T] {
	return &t.chunks[i/chunkSize].Load()[i%chunkSize]
}

// pop and push are a stack without locks. The tag changes with every pop, so that a
// compare-and-swap fails if slots were popped and pushed again in between (ABA).
func (t *Table[T]) pop() *Slot[T] {
	for {
		head := t.free.Load()
		if uint32(head) == 0 {
			return nil
		}
		s := t.slot(uint32(head) - 1)
		if t.free.CompareAndSwap(head, (head>>32+1)<<32|uint64(s.next.Load())) {
			return s
		}
	}
}

func (t *Table[T]) push(s *Slot[T]) {
	for {
		head := t.free.Load()
		s.next.Store(uint32(head))
		if t.free.CompareAndSwap(head, head&^(1<<32-1)|uint64(s.index+1)) {
			return
		}
	}
}

// grow makes one more chunk and reports whether there may be free slots now.
func (t *Table[T]) grow() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if uint32(t.free.Load()) != 0 {
		return true // another goroutine grew the table or released a slot
	}
	n := min(chunkSize, t.max-t.grown)
	if n <= 0 {
		return false
	}
	chunk := new([chunkSize]Slot[T])
	for i := range chunk[:n] {
		chunk[i].index = uint32(t.grown + i)
		chunk[i].gen.Store(1) // so that no ID is zero
		if t.init != nil {
			t.init(&chunk[i].Value)
		}
	}
	t.chunks[t.grown/chunkSize].Store(chunk)
	t.grown += n
	for i := n - 1; i >= 0; i-- {
		t.push(&chunk[i])
	}
	return true
}
