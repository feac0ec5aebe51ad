// SPDX-License-Identifier: MIT

package kernelsim

import (
	"fmt"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// BufRing is a simulated ring of provided buffers. The rules are those of
// [uring.BufRing]. What the kernel has it fills with garbage, so that who reads
// a buffer after giving it back notices.
type BufRing struct {
	r   *Ring
	o   uring.BufRingOptions
	mem []byte

	fresh []uint16 // recycled, not yet published

	// Guarded by the kernel's mu.
	ready  []uint16 // for the kernel to take
	owned  []bool   // by the kernel
	closed bool
}

// NewBufRing registers a ring of buffers, all of which are available. It knows
// Group, Entries, BufSize and Memory.
func (r *Ring) NewBufRing(o uring.BufRingOptions) (*BufRing, error) {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	if r.closed || r.fatal != nil {
		return nil, syscall.EBADF
	}
	if r.bufs[o.Group] != nil {
		return nil, syscall.EEXIST
	}
	b := &BufRing{r: r, o: o, mem: o.Memory, owned: make([]bool, o.Entries)}
	if r.bufs == nil {
		r.bufs = make(map[uint16]*BufRing)
	}
	r.bufs[o.Group] = b
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
	if b.owned[id] {
		b.r.k.violation("ring %d: buffer %d of group %d given back twice", b.r.id, id, b.o.Group)
		return
	}
	b.owned[id] = true
	b.ready = append(b.ready, id)
	p := b.Buffer(id)
	for i := range p {
		p[i] = byte(b.r.k.order.Uint32())
	}
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
	for _, o := range k.live.all {
		if o.ring == b.r && o.group() == b && b.r.fatal == nil {
			k.violation("ring %d: group %d closed with a stream in flight: user data %x, tag %d", b.r.id, b.o.Group, o.sqe.Raw().UserData, o.tag())
		}
	}
	b.closed = true
	delete(b.r.bufs, b.o.Group)
	return nil
}

// group returns the buffers of a multishot read, nil for others.
func (o *op) group() *BufRing {
	if o.sqe.Raw().Opcode != abi.IORING_OP_READ_MULTISHOT {
		return nil
	}
	return o.ring.bufs[o.sqe.Raw().BufIndex]
}

// provide carries out a multishot read: each piece of data goes into a buffer of
// its group. Like the kernel's it ends without a buffer, and with its data when
// the completion queue is full. The caller holds mu; there is data.
func (k *Kernel) provide(o *op) {
	b := o.group()
	if b == nil || len(b.ready) == 0 || o.fate.noBuffers && o.events > 0 {
		k.finish(o, -int32(syscall.ENOBUFS))
		return
	}
	id := b.ready[0]
	b.ready = b.ready[:copy(b.ready, b.ready[1:])]
	b.owned[id] = false
	on := o.on
	n := min(uint64(b.o.BufferSize), on.sent-on.taken)
	if o.fate.half {
		n = (n + 1) / 2
	} else if o.fate.short && n > 1 {
		n = 1 + o.fate.Uint64N(n-1)
	}
	p := b.Buffer(id)[:n]
	PipeBytes(p, on.taken)
	on.taken += n
	flags := uring.CQEBuffer | uring.CQEFlags(id)<<abi.IORING_CQE_BUFFER_SHIFT
	o.events++
	if o.ring.full() {
		k.note("full stream", o, int32(n))
		o.finalFlags = flags
		k.finish(o, int32(n))
		return
	}
	k.note("provided", o, int32(n))
	k.post(o, int32(n), flags|uring.CQEMore)
	on.waiting = append(on.waiting, o)
	if on.sent > on.taken {
		k.soon(k.order.IntN(3), func() { k.serve(on) })
	}
}
