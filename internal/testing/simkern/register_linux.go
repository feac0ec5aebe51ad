// SPDX-License-Identifier: MIT

package simkern

import (
	"slices"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// restrictions are what a ring may do.
type restrictions struct {
	ops, registers []uint8
	flags          uint8
	required       uint8
}

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
		return -1, syscall.ENOMEM // everybody does without, and the door would not know the ring
	}
	return -1, syscall.EINVAL
}

func addressOf(p sys.UnsafePointer) uint64 { return uint64(uintptr(p)) }

// restrict notes what is allowed.
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

// allows reports whether an entry keeps within what a ring may do.
func (l *restrictions) allows(e *uring.RawSQE) bool {
	return l == nil || slices.Contains(l.ops, e.Opcode) && e.Flags&^(l.flags|l.required) == 0 && e.Flags&l.required == l.required
}

// register registers buffers, which are struct iovecs.
func (r *ring) register(arg sys.UnsafePointer, n uint32) (int, syscall.Errno) {
	if r.fixed != nil {
		return -1, syscall.EBUSY
	}
	for _, v := range sys.At[syscall.Iovec](addressOf(arg), int(n)) {
		r.fixed = append(r.fixed, [2]uint64{addressOf(sys.Pointer(v.Base)), uint64(v.Len)})
	}
	return 0, 0
}
