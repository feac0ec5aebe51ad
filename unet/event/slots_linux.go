// SPDX-License-Identifier: MIT

package event

const (
	genMask   = 1<<24 - 1
	genShift  = 32
	kindShift = 56
)

// slots are the connections of a loop. A completion names its connection by slot and
// generation, so that a completion for a closed connection does not reach the next one in the
// slot.
type slots struct {
	conns []*Conn  // by slot
	free  []uint32 // slots without a connection
	open  int
	gen   uint32 // of the connection or socket that was added last
}

// tag is the user data of an entry: its kind, and the connection's slot and
// generation.
func tag(kind int, slot, gen uint32) uint64 {
	return uint64(kind)<<kindShift | uint64(gen)<<genShift | uint64(slot)
}

func (k *backendState) tag(kind int) uint64 { return tag(kind, k.slot, k.gen) }

// generation returns the generation of a new connection or socket.
func (s *slots) generation() uint32 {
	s.gen++
	return s.gen & genMask
}

// add gives a connection its slot and generation.
func (s *slots) add(c *Conn) {
	k := &c.bstate
	k.gen = s.generation()
	if n := len(s.free); n > 0 {
		k.slot = s.free[n-1]
		s.free = s.free[:n-1]
		s.conns[k.slot] = c
	} else {
		k.slot = uint32(len(s.conns))
		s.conns = append(s.conns, c)
	}
	s.open++
}

// remove frees the slot of a closed connection.
func (s *slots) remove(c *Conn) {
	s.conns[c.bstate.slot] = nil
	s.free = append(s.free, c.bstate.slot)
	s.open--
}

// find returns the connection of a completion, nil if it was closed.
func (s *slots) find(userData uint64) *Conn {
	slot := uint32(userData)
	if int(slot) >= len(s.conns) {
		return nil
	}
	c := s.conns[slot]
	if c == nil || c.bstate.gen != uint32(userData>>genShift)&genMask {
		return nil
	}
	return c
}
