// SPDX-License-Identifier: MIT

package kernelsim

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// group is the kernel's half of a ring of provided buffers.
type group struct {
	id     uint16
	has    []provided     // published and not taken
	head   uint16         // counts those taken
	shared *sharedBuffers // where the user publishes more, nil for a [BufRing]
}

// provided is a buffer. The user keeps its memory reachable.
type provided struct {
	addr uint64
	n    uint32
	id   uint16
}

func (p provided) memory() []byte { return sys.At[byte](p.addr, int(p.n)) }

// give lets the kernel have a buffer, which it fills with garbage. The caller holds mu.
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

// group returns the buffers that an operation takes from, nil for none.
func (o *op) group() *group {
	if o.e.Opcode == abi.IORING_OP_READ_MULTISHOT || o.e.Opcode == abi.IORING_OP_RECV && o.e.Flags&abi.IOSQE_BUFFER_SELECT != 0 {
		return o.ring.base().groups[o.e.BufIndex]
	}
	return nil
}

// usesGroup returns an operation in flight that takes from a group. The caller holds mu.
func (k *Kernel) usesGroup(r front, g *group) *op {
	for _, o := range k.live.all {
		if o.ring == r && o.group() == g && o.state != ending && !r.base().failed {
			return o
		}
	}
	return nil
}

// bufferFlags are those of a completion that names a buffer.
func bufferFlags(id uint16) uring.CQEFlags {
	return uring.CQEBuffer | uring.CQEFlags(id)<<abi.IORING_CQE_BUFFER_SHIFT
}

// provide carries out a multishot read of a pipe: each piece of data goes into a buffer
// of its group. Like the kernel's it ends without a buffer. The caller holds mu; there is
// data.
func (k *Kernel) provide(o *op) {
	g := o.group()
	if g == nil || len(g.has) == 0 || o.effect.noBuffers && o.shots > 0 {
		k.finish(o, -int32(syscall.ENOBUFS))
		return
	}
	b := g.take()
	on := o.on
	n := o.length(int(min(uint64(b.n), on.sent-on.taken)))
	PipeBytes(b.memory()[:n], on.taken)
	on.taken += uint64(n)
	if !k.shot(o, int32(n), bufferFlags(b.id)) {
		return
	}
	on.waiting = append(on.waiting, o)
	if on.sent > on.taken {
		k.soon(k.order.IntN(3), func() { k.serve(on) })
	}
}

// BufRing is a ring of provided buffers of a [Ring]. The rules are those of
// [uring.BufRing]. What the kernel has it fills with garbage, so that a buffer that is
// read after it was given back shows.
type BufRing struct {
	r   *Ring
	o   uring.BufRingOptions
	mem []byte

	fresh []uint16 // recycled, not yet published

	// Guarded by the kernel's mu.
	g      *group
	closed bool
}

// NewBufRing registers a ring of buffers, all of which are available. It knows
// Group, Entries, BufSize and Memory.
func (r *Ring) NewBufRing(o uring.BufRingOptions) (*BufRing, error) {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	if r.closed || r.failed {
		return nil, syscall.EBADF
	}
	if r.groups[o.Group] != nil {
		return nil, syscall.EEXIST
	}
	b := &BufRing{r: r, o: o, mem: o.Memory, g: &group{id: o.Group}}
	r.groups[o.Group] = b.g
	for id := range o.Entries {
		b.give(uint16(id))
	}
	return b, nil
}

// Buffer returns the whole buffer with the given id.
func (b *BufRing) Buffer(id uint16) []byte {
	off := int(id) * b.o.BufferSize
	return b.mem[off : off+b.o.BufferSize : off+b.o.BufferSize]
}

// Recycle puts a buffer back; the kernel sees it after Publish.
func (b *BufRing) Recycle(id uint16) { b.fresh = append(b.fresh, id) }

// Publish shows recycled buffers to the kernel.
func (b *BufRing) Publish() {
	b.r.k.mu.Lock()
	defer b.r.k.mu.Unlock()
	for _, id := range b.fresh {
		b.give(id)
	}
	b.fresh = b.fresh[:0]
}

// give lets the kernel have a buffer. The caller holds mu.
func (b *BufRing) give(id uint16) {
	if b.closed {
		b.r.k.violation("ring %d: buffer %d of group %d given back after the group was closed", b.r.id, id, b.o.Group)
		return
	}
	p := b.Buffer(id)
	b.g.give(b.r.k, provided{sys.SliceAddr(p), uint32(len(p)), id})
}

// Take returns the data of a completion that names a buffer, and true.
func (b *BufRing) Take(c uring.CQE) ([]byte, bool) {
	n := max(int(c.Res), 0)
	return b.Buffer(c.BufferID())[:n:n], true
}

// TakeBundle panics: bundles are not simulated.
func (b *BufRing) TakeBundle(c uring.CQE, _ func(uint16, []byte, bool)) {
	panic(fmt.Sprintf("kernelsim: a bundle: %+v", c))
}

// Close unregisters the group. An operation in flight that names it is a
// violation.
func (b *BufRing) Close() error {
	k := b.r.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.usesGroup(b.r, b.g); o != nil {
		k.violation("ring %d: group %d is unregistered while %v is in flight", b.r.id, b.o.Group, o)
	}
	b.closed = true
	delete(b.r.groups, b.o.Group)
	return nil
}
