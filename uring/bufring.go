// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// BufRingOptions describe a provided-buffer ring.
type BufRingOptions struct {
	// Group is the id by which entries name the ring. On Linux 6.1 an id below 64 must
	// not be registered a second time on a ring: the kernel would continue to count
	// where the first group ended.
	Group uint16
	// Entries is the number of buffers, a power of two up to 32768. BufferSize is the
	// length of each buffer in bytes.
	Entries    int
	BufferSize int
	// Memory holds the buffers one after the other, Entries times BufferSize bytes; nil
	// lets NewBufRing map memory outside of Go's heap. The ring keeps it reachable
	// until Close and never unmaps it; afterwards it belongs to the caller, as soon as the
	// operations that were in flight have ended. With memory of Go's heap, slices of the
	// buffers may outlive the ring.
	Memory []byte
	// Buffers replaces Entries, BufferSize and Memory by buffers of any address and
	// length. Their number is a power of two up to 32768. The index of a buffer is its
	// id. The ring keeps them reachable until Close; afterwards they belong to the
	// caller, as Memory does.
	Buffers [][]byte
	// KernelMemory places the ring itself, not the buffers, in memory of the
	// kernel. Needs a ring with a descriptor. (6.4)
	KernelMemory bool
	// Incremental lets the kernel use a buffer in several pieces. It is for sockets and
	// pipes: for a short read from a file, and for a receive with MSG_TRUNC, the kernel
	// consumes another length than it reports. (6.12; before that the result is EINVAL,
	// also on kernels that ignore the flag)
	Incremental bool
}

// BufRing is a group of buffers from which the kernel takes one when data arrives.
// Unless the options supply memory, Close frees the buffers. A buffer belongs to the
// kernel from Recycle and Publish until a completion names it, then to the caller until
// Recycle. It is not safe for concurrent use, but the goroutine that uses it need not
// be the one that submits. Available and Close enter the kernel, which with
// SingleIssuer only the issuing thread may do. (5.19)
type BufRing struct {
	ring  *Ring
	opts  BufRingOptions
	mem   *sys.Region // the ring
	slab  *sys.Region // the buffers, unless the options name memory
	data  []byte      // the buffers
	bufs  []abi.Buf
	word  *atomic.Uint32 // bid of entry 0 and the tail, in one word
	tail  uint16
	mask  uint16
	last  uint16   // the buffer recycled last
	after []uint16 // the buffer recycled after each buffer
	used  []int    // bytes of a buffer consumed so far (incremental)
}

// tailWord is the offset of the word that holds the 16-bit tail.
const tailWord = 12

// NewBufRing registers a provided-buffer ring with all its buffers available.
func (r *Ring) NewBufRing(o BufRingOptions) (*BufRing, error) {
	if o.Buffers != nil {
		if err := o.checkBuffers(); err != nil {
			return nil, err
		}
		o.Entries, o.BufferSize = len(o.Buffers), 1
	}
	if o.Entries <= 0 || o.Entries > 1<<15 || o.Entries&(o.Entries-1) != 0 {
		return nil, fmt.Errorf("uring: buffer ring of %d buffers: the number must be a power of two up to 32768", o.Entries)
	}
	if o.BufferSize <= 0 || o.BufferSize > min(maxTransfer, math.MaxInt/o.Entries) {
		return nil, fmt.Errorf("uring: buffer ring of %d buffers of %d bytes: the size must be positive and fit into memory", o.Entries, o.BufferSize)
	}
	if o.Memory != nil && len(o.Memory) != o.Entries*o.BufferSize {
		return nil, fmt.Errorf("uring: buffer ring of %d buffers of %d bytes in memory of %d bytes", o.Entries, o.BufferSize, len(o.Memory))
	}
	b := &BufRing{ring: r, opts: o, mask: uint16(o.Entries - 1)}
	if err := b.register(); err != nil {
		return nil, errors.Join(err, b.mem.Unmap(), b.slab.Unmap())
	}
	r.bufs = append(r.bufs, b)
	b.fill()
	return b, nil
}

// checkBuffers returns an error if Buffers cannot make a buffer ring.
func (o *BufRingOptions) checkBuffers() error {
	if o.Entries != 0 || o.BufferSize != 0 || o.Memory != nil {
		return errors.New("uring: buffer ring of given buffers: Entries, BufferSize and Memory must not be set")
	}
	for i, p := range o.Buffers {
		if len(p) == 0 || len(p) > maxTransfer {
			return fmt.Errorf("uring: buffer ring: buffer %d has %d bytes", i, len(p))
		}
	}
	o.Buffers = slices.Clone(o.Buffers)
	return nil
}

// fill puts all buffers into a ring that is registered.
func (b *BufRing) fill() {
	n := b.opts.Entries
	if b.data = b.opts.Memory; b.data == nil && b.slab != nil {
		b.data = b.slab.Bytes()
	}
	b.after, b.used = make([]uint16, n), make([]int, n)
	b.bufs = sys.Slice[abi.Buf](b.mem, 0, n)
	b.word = b.mem.Word(tailWord)
	for id := range n {
		b.Recycle(uint16(id))
	}
	b.Publish()
}

// register provides the memory of ring and buffers and registers the ring with the kernel.
func (b *BufRing) register() (err error) {
	size := b.opts.Entries * int(sys.Size[abi.Buf]())
	if b.opts.Memory == nil && b.opts.Buffers == nil {
		if b.slab, err = sys.MapAnon(b.opts.Entries*b.opts.BufferSize, false); err != nil {
			return err
		}
	}
	reg := &abi.BufReg{RingEntries: uint32(b.opts.Entries), Bgid: b.opts.Group}
	if b.opts.Incremental {
		// Kernels that do not know the flag use up a buffer at a time all the
		// same, and Take would wait for the rest of it. Two features came with
		// 6.12: the other one can be seen.
		if b.ring.features&FeatMinTimeout == 0 {
			return sys.Error("io_uring_register "+OpRegisterPBufRing.String(), syscall.EINVAL)
		}
		reg.Flags |= abi.IOU_PBUF_RING_INC
	}
	if b.opts.KernelMemory {
		reg.Flags |= abi.IOU_PBUF_RING_MMAP
	} else {
		if b.mem, err = sys.MapAnon(size, false); err != nil {
			return err
		}
		reg.RingAddr = b.mem.Addr()
	}
	if _, err = b.ring.register(OpRegisterPBufRing, sys.Pointer(reg), 1); err != nil {
		return err
	}
	if b.opts.KernelMemory {
		off := int64(abi.IORING_OFF_PBUF_RING) | int64(b.opts.Group)<<abi.IORING_OFF_PBUF_SHIFT
		if b.mem, err = sys.MapRing(b.ring.FD(), off, sys.PageCeil(size)); err != nil {
			return errors.Join(err, b.unregister())
		}
	}
	return nil
}

func (b *BufRing) unregister() error {
	_, err := b.ring.register(OpUnregisterPBufRing, sys.Pointer(&abi.BufReg{Bgid: b.opts.Group}), 1)
	return err
}

// Group returns the id of the group.
func (b *BufRing) Group() uint16 { return b.opts.Group }

// Len returns the number of buffers.
func (b *BufRing) Len() int { return b.opts.Entries }

// Buffer returns the whole buffer with the given id.
func (b *BufRing) Buffer(id uint16) []byte {
	if b.opts.Buffers != nil {
		return b.opts.Buffers[id]
	}
	off := int(id) * b.opts.BufferSize
	return b.data[off : off+b.opts.BufferSize : off+b.opts.BufferSize]
}

// Recycle puts a buffer back at the end of the ring; the kernel sees it after
// [BufRing.Publish]. A buffer must be recycled once for each time that the kernel has
// released it.
func (b *BufRing) Recycle(id uint16) {
	at := b.tail & b.mask
	e := &b.bufs[at]
	buf := b.Buffer(id)
	e.Addr, e.Len = sys.SliceAddr(buf), uint32(len(buf))
	if at == 0 {
		// The id shares its word with the tail, which the kernel reads.
		b.word.Store(halves(id, uint16(b.published())))
	} else {
		e.Bid = id
	}
	b.after[b.last], b.last, b.used[id] = id, id, 0
	b.tail++
}

// published returns the tail that the kernel sees.
func (b *BufRing) published() uint16 {
	w := b.word.Load()
	if bigEndian {
		return uint16(w)
	}
	return uint16(w >> 16)
}

// Publish shows recycled buffers to the kernel.
func (b *BufRing) Publish() {
	w := b.word.Load()
	id := uint16(w)
	if bigEndian {
		id = uint16(w >> 16)
	}
	b.word.Store(halves(id, b.tail))
}

// Take returns the data of a completion that names a buffer, and whether the kernel is
// done with that buffer, which must then be recycled after use. It returns nil, false
// for a completion without a buffer. On an incremental ring call Take once for each
// completion, in the order in which they arrived. While done is false, the caller may
// read data until the buffer is recycled, and must not write beyond its end.
func (b *BufRing) Take(c CQE) (data []byte, done bool) {
	if !c.Has(CQEBuffer) || int(c.BufferID()) >= b.opts.Entries {
		return nil, false
	}
	return b.take(c.BufferID(), max(int(c.Res), 0))
}

// take takes up to n bytes from the front of the unused part of a buffer.
func (b *BufRing) take(id uint16, n int) (data []byte, done bool) {
	from, buf := b.used[id], b.Buffer(id)
	to := min(from+n, len(buf))
	data = buf[from:to:to]
	// An incremental ring releases a buffer when it is used up. CQEBufMore should be
	// set until then, but it is missing on completions without data (end of stream)
	// although the kernel continues to use the buffer.
	if b.opts.Incremental && to < len(buf) {
		b.used[id] = to
		return data, false
	}
	b.used[id] = 0
	return data, true
}

// TakeBundle calls yield for each buffer of a bundle's completion in order, with the
// id, the data, and whether the kernel is done with that buffer. Call TakeBundle before
// any buffer of the completion is recycled. A completion without data, at the end of a
// stream, uses no buffer even if it names one.
func (b *BufRing) TakeBundle(c CQE, yield func(id uint16, data []byte, done bool)) {
	if !c.Has(CQEBuffer) || int(c.BufferID()) >= b.opts.Entries {
		return
	}
	id, left := c.BufferID(), int(c.Res)
	for left > 0 {
		next := b.after[id] // yield may recycle the buffer
		data, done := b.take(id, left)
		left -= len(data)
		yield(id, data, done)
		id = next
	}
}

// Available returns how many published buffers the kernel has not taken.
// (6.8)
func (b *BufRing) Available() (int, error) {
	st := &abi.BufStatus{BufGroup: uint32(b.opts.Group)}
	if _, err := b.ring.register(OpRegisterPBufStatus, sys.Pointer(st), 1); err != nil {
		return 0, err
	}
	return int(b.published() - uint16(st.Head)), nil
}

// Close unregisters the group and frees the buffers. No slice of them may be used
// afterwards. While operations of the ring are in flight, one of them may have picked a
// buffer: the buffers then stay mapped, or reachable, until the ring is closed. They also
// stay if the ring has had completions without an entry (tags, messages of rings), because
// it counts completions to know what is in flight. When the kernel refuses (EEXIST on
// another thread than the issuing one), everything stays as it is, and Close of the ring
// frees it. The second call returns nil.
func (b *BufRing) Close() error {
	if b.mem == nil {
		return nil
	}
	if err := b.unregister(); err != nil {
		return err
	}
	if !b.ring.idle() {
		b.ring.retired = append(b.ring.retired, &BufRing{slab: b.slab, opts: b.opts})
		b.slab = nil
	}
	b.ring.bufs = slices.DeleteFunc(b.ring.bufs, func(other *BufRing) bool { return other == b })
	return b.free()
}

// unmap gives back the memory of the ring. The buffers stay.
func (b *BufRing) unmap() error {
	err := b.mem.Unmap()
	b.mem, b.bufs, b.word = nil, nil, new(atomic.Uint32)
	return err
}

// free gives all memory back, once the kernel no longer uses it.
func (b *BufRing) free() error {
	err := errors.Join(b.unmap(), b.slab.Unmap())
	b.slab, b.data, b.opts.Memory, b.opts.Buffers = nil, nil, nil, nil
	return err
}
