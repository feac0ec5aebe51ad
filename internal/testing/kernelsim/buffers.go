// SPDX-License-Identifier: MIT

package kernelsim

import (
	"slices"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// group is the kernel's side of a ring of provided buffers.
type group struct {
	id     uint16
	has    []provided     // published and not yet used
	head   uint16         // number of used buffers
	shared *sharedBuffers // where the user publishes more buffers
}

// provided is one provided buffer. The user keeps its memory reachable.
type provided struct {
	addr uint64
	n    uint32
	id   uint16
}

func (p provided) memory() []byte { return sys.At[byte](p.addr, int(p.n)) }

// give adds a buffer to the group and fills it with garbage. The caller holds mu.
func (g *group) give(k *Kernel, p provided) {
	if slices.ContainsFunc(g.has, func(x provided) bool { return x.id == p.id }) {
		k.violation("buffer %d of group %d given back twice", p.id, g.id)
		return
	}
	g.has = append(g.has, p)
	b, x := p.memory(), k.order.Uint64()
	for i := range b {
		b[i] = byte(x>>(i&7*8)) + byte(i)
	}
}

// take takes the first buffer.
func (g *group) take() provided {
	p := g.has[0]
	g.has = g.has[:copy(g.has, g.has[1:])]
	g.head++
	return p
}

// group returns the buffer group of an operation, or nil.
func (o *op) group() *group {
	if o.e.Opcode == abi.IORING_OP_RECV && o.e.Flags&abi.IOSQE_BUFFER_SELECT != 0 {
		return o.ring.base().groups[o.e.BufIndex]
	}
	return nil
}

// usesGroup returns an operation in flight that uses a group. The caller holds mu.
func (k *Kernel) usesGroup(r front, g *group) *op {
	for _, o := range k.live.all {
		if o.ring == r && o.group() == g && o.state != ending && !r.base().failed {
			return o
		}
	}
	return nil
}

// bufferFlags returns the flags of a completion that names a buffer.
func bufferFlags(id uint16) uring.CQEFlags {
	return uring.CQEBuffer | uring.CQEFlags(id)<<abi.IORING_CQE_BUFFER_SHIFT
}

// span is a registered buffer. An empty slot is zero. The user keeps the memory reachable.
type span struct{ addr, n uint64 }

// sparse makes a table of n empty slots. The caller holds mu.
func (b *ringBase) sparse(n int) (int, syscall.Errno) {
	switch {
	case b.fixed != nil:
		return -1, syscall.EBUSY
	case n <= 0:
		return -1, syscall.EINVAL
	}
	b.fixed = make([]span, n)
	return 0, 0
}

// update replaces slots of the table. The caller holds mu.
func (b *ringBase) update(first int, to []span) (int, syscall.Errno) {
	switch {
	case b.fixed == nil:
		return -1, syscall.ENXIO
	case first+len(to) > len(b.fixed):
		return -1, syscall.EINVAL
	}
	return copy(b.fixed[first:], to), 0
}

// hasRegistered reports whether the memory of an operation is registered, if that is required.
func (b *ringBase) hasRegistered(o *op) bool {
	if o.e.Opcode != abi.IORING_OP_READ_FIXED && o.e.Opcode != abi.IORING_OP_WRITE_FIXED {
		return true
	}
	if int(o.e.BufIndex) >= len(b.fixed) {
		return false
	}
	s := b.fixed[o.e.BufIndex]
	return s.n > 0 && o.e.Addr >= s.addr && o.e.Addr+uint64(o.e.Len) <= s.addr+s.n
}
