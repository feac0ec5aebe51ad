// SPDX-License-Identifier: MIT

package unet

import (
	"sync"
	"weak"
)

// table finds the socket of an event. What the kernel gives back is an index
// with a generation: an event of a socket that was closed finds nothing, even
// when the index has been given to another. The table does not keep sockets
// alive, so that one that is dropped without Close can be collected.
type table struct {
	mu    sync.Mutex
	slots []tableSlot
	free  []uint32
}

type tableSlot struct {
	generation uint32
	sock       weak.Pointer[sock]
}

// add enters a socket and returns its key.
func (t *table) add(s *sock) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		t.slots = append(t.slots, tableSlot{generation: 1})
		t.free = append(t.free, uint32(len(t.slots)-1))
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.slots[i].sock = weak.Make(s)
	return uint64(t.slots[i].generation)<<32 | uint64(i)
}

// remove forgets a socket.
func (t *table) remove(key uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := &t.slots[uint32(key)]
	slot.generation++
	slot.sock = weak.Pointer[sock]{}
	t.free = append(t.free, uint32(key))
}

// find returns the socket of a key, nil when it has gone. The caller holds mu.
func (t *table) find(key uint64) *sock {
	if i := uint32(key); int(i) < len(t.slots) && t.slots[i].generation == uint32(key>>32) {
		return t.slots[i].sock.Value()
	}
	return nil
}
