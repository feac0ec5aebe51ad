// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/reactor"
)

// The memory of a pool is one registered buffer, of which an operation uses any part. The rings of a
// System come and go with its files, so the memory is registered when they are opened, or when the
// pool is made, and lost with them. An operation finds its registration without a lock. If the pool
// is closed before the kernel has taken the operation, the kernel answers EFAULT: it checks that the
// memory lies in what is registered at the index. Then the operation is submitted again without
// the registration.

// registered is the memory of a [Buffers]. Its System refers to it, but not to the Buffers.
type registered struct {
	sys    *System
	stride int // between the beginnings of buffers
	memory []byte
	on     atomic.Pointer[registration] // nil if it is not registered
	reason string                       // why not, or not all of it; guarded by the System's mu
}

// registration is a part of the memory that rings have registered.
type registration struct {
	rings  *reactor.Reactor
	index  uint16
	memory []byte
}

// mostRegistered is how many bytes a registered buffer may have.
const mostRegistered = 1 << 30

// notOpen is the reason why nothing is registered before rings are open.
const notOpen = "the rings are not open"

// addBuffers adds a pool, and registers it if the rings are open.
func (s *System) addBuffers(m *registered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*registered
	if old := s.buffers.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = append(all, m)
	s.buffers.Store(&all)
	if r := s.rings.Load(); r != nil {
		m.register(r)
	}
}

// removeBuffers removes a pool.
func (s *System) removeBuffers(m *registered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(*s.buffers.Load()), func(x *registered) bool { return x == m })
	s.buffers.Store(&all)
	if on := m.on.Swap(nil); on != nil {
		on.rings.UnregisterBuffer(on.index)
	}
}

// registerBuffers registers the pools with rings that were opened, or notes that there are none if r
// is nil. The caller holds mu.
func (s *System) registerBuffers(r *reactor.Reactor) {
	all := s.buffers.Load()
	if all == nil {
		return
	}
	for _, m := range *all {
		m.on.Store(nil)
		if r != nil {
			m.register(r)
		}
	}
}

// register registers the memory. While the limit of locked memory does not allow that, it tries half
// as many buffers. The caller holds mu of the System.
func (m *registered) register(r *reactor.Reactor) {
	m.reason = ""
	if len(m.memory) > mostRegistered {
		m.reason = "the kernel registers at most 1 GiB"
	}
	for n := min(len(m.memory), mostRegistered) / m.stride; n > 0; n /= 2 {
		part := m.memory[:n*m.stride]
		index, err := r.RegisterBuffer(part)
		if err == nil {
			m.on.Store(&registration{r, index, part})
			return
		}
		m.reason = err.Error()
		if !errors.Is(err, syscall.ENOMEM) {
			return
		}
	}
}

// count returns how many buffers are registered, and why not all.
func (m *registered) count() (n int, reason string) {
	s := m.sys
	s.mu.Lock()
	defer s.mu.Unlock()
	switch on := m.on.Load(); {
	case on != nil:
		return len(on.memory) / m.stride, m.reason
	case s.rings.Load() != nil && m.reason != "":
		return 0, m.reason
	case s.reason != "":
		return 0, s.reason
	}
	return 0, notOpen
}

// registeredIndex returns the index at which rings have registered the memory of p.
func (s *System) registeredIndex(r *reactor.Reactor, p []byte) (uint16, bool) {
	all := s.buffers.Load()
	if all == nil {
		return 0, false
	}
	for _, m := range *all {
		on := m.on.Load()
		if on == nil || on.rings != r {
			continue
		}
		if _, ok := sys.Within(p, on.memory); ok {
			return on.index, true
		}
	}
	return 0, false
}
