// SPDX-License-Identifier: MIT

package kernelsim

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Register implements [sys.SimulatedRing].
func (r *ring) Register(code uint32, arg sys.UnsafePointer, n uint32) (int, syscall.Errno) {
	k := r.k
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case r.closed, r.failed:
		return -1, syscall.EBADF
	case r.issuer != 0 && r.issuer != sys.ThreadID():
		return -1, syscall.EEXIST
	case r.limits != nil && !r.disabled && !slices.Contains(r.limits.registers, uint8(code)):
		return -1, syscall.EACCES
	}
	switch code {
	case abi.IORING_REGISTER_ENABLE_RINGS:
		if !r.disabled {
			return -1, syscall.EBADFD
		}
		r.disabled = false
		r.own()
		return 0, 0
	case abi.IORING_REGISTER_RESTRICTIONS:
		if !r.disabled || r.limits != nil {
			return -1, syscall.EBADFD
		}
		r.restrict(sys.At[abi.Restriction](addressOf(arg), int(n)))
		return 0, 0
	case abi.IORING_REGISTER_BUFFERS:
		return r.register(arg, n)
	case abi.IORING_UNREGISTER_BUFFERS:
		r.fixed = nil
		return 0, 0
	case abi.IORING_REGISTER_BUFFERS2:
		reg := &sys.At[abi.RsrcRegister](addressOf(arg), 1)[0]
		if reg.Flags != abi.IORING_RSRC_REGISTER_SPARSE || reg.Tags != 0 {
			return -1, syscall.EINVAL // not simulated
		}
		return r.sparse(int(reg.Nr))
	case abi.IORING_REGISTER_BUFFERS_UPDATE:
		u := &sys.At[abi.RsrcUpdate2](addressOf(arg), 1)[0]
		if u.Tags != 0 {
			return -1, syscall.EINVAL // not simulated
		}
		return r.update(int(u.Offset), spans(sys.At[syscall.Iovec](u.Data, int(u.Nr))))
	case abi.IORING_REGISTER_CLONE_BUFFERS:
		return r.clone(&sys.At[abi.CloneBuffers](addressOf(arg), 1)[0])
	case abi.IORING_REGISTER_PBUF_RING:
		return r.provide(&sys.At[abi.BufReg](addressOf(arg), 1)[0])
	case abi.IORING_UNREGISTER_PBUF_RING:
		return r.withdraw(sys.At[abi.BufReg](addressOf(arg), 1)[0].Bgid)
	case abi.IORING_REGISTER_PBUF_STATUS:
		status := &sys.At[abi.BufStatus](addressOf(arg), 1)[0]
		g := r.groups[uint16(status.BufGroup)]
		if g == nil {
			return -1, syscall.ENOENT
		}
		status.Head = uint32(g.head)
		return 0, 0
	case abi.IORING_REGISTER_RING_FDS:
		return -1, syscall.ENOMEM // all users work without it, and the hook could not identify the ring
	}
	return -1, syscall.EINVAL
}

func addressOf(p sys.UnsafePointer) uint64 { return uint64(uintptr(p)) }

// restrict records the restrictions.
func (r *ring) restrict(table []abi.Restriction) {
	r.limits = &restrictions{}
	for _, t := range table {
		switch t.Opcode {
		case abi.IORING_RESTRICTION_SQE_OP:
			r.limits.ops = append(r.limits.ops, t.Value)
		case abi.IORING_RESTRICTION_REGISTER_OP:
			r.limits.registers = append(r.limits.registers, t.Value)
		case abi.IORING_RESTRICTION_SQE_FLAGS_ALLOWED:
			r.limits.flags = t.Value
		case abi.IORING_RESTRICTION_SQE_FLAGS_REQUIRED:
			r.limits.required = t.Value
		}
	}
}

// register registers buffers, which are struct iovecs.
func (r *ring) register(arg sys.UnsafePointer, n uint32) (int, syscall.Errno) {
	if r.fixed != nil {
		return -1, syscall.EBUSY
	}
	r.fixed = spans(sys.At[syscall.Iovec](addressOf(arg), int(n)))
	return 0, 0
}

func spans(vec []syscall.Iovec) []span {
	out := make([]span, len(vec))
	for i, v := range vec {
		out[i] = span{addressOf(sys.Pointer(v.Base)), uint64(v.Len)}
	}
	return out
}

// clone shares buffers of another ring. The table is not replaced as a whole.
func (r *ring) clone(arg *abi.CloneBuffers) (int, syscall.Errno) {
	i := slices.IndexFunc(r.k.rings, func(f front) bool {
		src, ok := f.(*ring)
		return ok && !src.closed && src.fd.Int() == int(arg.SrcFd)
	})
	if i < 0 {
		return -1, syscall.EBADF
	}
	src := r.k.rings[i].base()
	switch end := int(arg.SrcOff + arg.Nr); {
	case src.fixed == nil:
		return -1, syscall.ENXIO
	case arg.Flags != abi.IORING_REGISTER_DST_REPLACE:
		return -1, syscall.EBUSY
	case arg.Nr == 0 || end > len(src.fixed):
		return -1, syscall.EINVAL // with 0 for all buffers, which is not simulated
	default:
		_, errno := r.update(int(arg.DstOff), src.fixed[arg.SrcOff:end])
		return 0, errno
	}
}

// sharedBuffers are the entries of a ring of provided buffers, which the user writes.
type sharedBuffers struct {
	entries []abi.Buf
	first   *atomic.Uint32 // ID of entry 0, and the tail
	seen    uint16         // the part of the tail that has been read
}

// provide registers a group.
func (r *ring) provide(reg *abi.BufReg) (int, syscall.Errno) {
	switch n := reg.RingEntries; {
	case reg.Flags != 0 || n == 0 || n&(n-1) != 0 || n > 1<<15 || reg.RingAddr == 0:
		return -1, syscall.EINVAL
	case r.groups[reg.Bgid] != nil:
		return -1, syscall.EEXIST
	}
	s := &sharedBuffers{entries: sys.At[abi.Buf](reg.RingAddr, int(reg.RingEntries))}
	const tailWord = 12
	s.first = &sys.At[atomic.Uint32](reg.RingAddr+tailWord, 1)[0]
	r.groups[reg.Bgid] = &group{id: reg.Bgid, shared: s}
	return 0, 0
}

// withdraw unregisters a group.
func (r *ring) withdraw(id uint16) (int, syscall.Errno) {
	g := r.groups[id]
	if g == nil {
		return -1, syscall.ENOENT
	}
	if o := r.k.usesGroup(r, g); o != nil {
		r.k.violation("group %d is unregistered while %v is in flight", id, o)
	}
	delete(r.groups, id)
	return 0, 0
}

// fetch takes the published buffers.
func (g *group) fetch(k *Kernel) {
	s := g.shared
	if s == nil {
		return
	}
	var halves [4]byte
	binary.NativeEndian.PutUint32(halves[:], s.first.Load())
	tail := binary.NativeEndian.Uint16(halves[2:])
	for ; s.seen != tail; s.seen++ {
		i := s.seen & uint16(len(s.entries)-1)
		id := binary.NativeEndian.Uint16(halves[:])
		if i != 0 {
			id = s.entries[i].Bid
		}
		g.give(k, provided{s.entries[i].Addr, s.entries[i].Len, id})
	}
}
