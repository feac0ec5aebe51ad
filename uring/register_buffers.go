// SPDX-License-Identifier: MIT

package uring

import (
	"runtime"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

func keepAlive(v any) { runtime.KeepAlive(v) }

func iovecs(bufs [][]byte) []Iovec {
	out := make([]Iovec, len(bufs))
	for i, b := range bufs {
		out[i] = NewIovec(b)
	}
	return out
}

// RegisterBuffers pins buffers for [SQE.ReadFixed] and its relatives; their
// index is their place in the slice. They belong to the ring until
// [Ring.UnregisterBuffers] or Close and the completion of what uses them, and
// count against RLIMIT_MEMLOCK (ENOMEM), each up to 1 GiB. A nil buffer leaves
// a slot empty (5.13). Memory outside of Go's heap avoids pinning heap pages
// for good. (5.1)
func (r *Ring) RegisterBuffers(bufs [][]byte) error {
	iov := iovecs(bufs)
	_, err := r.register(OpRegisterBuffers, sys.SlicePointer(iov), count(len(iov)))
	return err
}

// RegisterBuffersTagged is [Ring.RegisterBuffers] with a tag for each buffer:
// when a buffer whose tag is not 0 has left the table, and the kernel is done
// with it, a completion with that user data arrives. Before 6.13 only an update
// causes one, not [Ring.UnregisterBuffers], which waits instead. There are as
// many tags as buffers. (5.13)
func (r *Ring) RegisterBuffersTagged(bufs [][]byte, tags []uint64) error {
	iov := iovecs(bufs)
	if err := checkTags(tags, len(iov)); err != nil {
		return err
	}
	return r.registerRsrc(OpRegisterBuffers2, &abi.RsrcRegister{
		Nr: count(len(iov)), Data: sys.SliceAddr(iov), Tags: sys.SliceAddr(tags)}, iov, tags)
}

// RegisterBuffersSparse makes a table of n empty slots. (5.19)
func (r *Ring) RegisterBuffersSparse(n int) error {
	return r.registerRsrc(OpRegisterBuffers2, &abi.RsrcRegister{
		Nr: count(n), Flags: abi.IORING_RSRC_REGISTER_SPARSE})
}

// UpdateBuffers replaces buffers from slot first on; nil empties a slot. It
// returns how many slots it wrote. tags may be nil. (5.13)
func (r *Ring) UpdateBuffers(first int, bufs [][]byte, tags []uint64) (int, error) {
	iov := iovecs(bufs)
	return r.updateRsrc(OpRegisterBuffersUpdate, first, sys.SliceAddr(iov), len(iov), tags, iov)
}

// UnregisterBuffers drops the table; buffers in use by operations in flight
// stay pinned until those end. Kernels before 6.13 wait for that here. (5.1)
func (r *Ring) UnregisterBuffers() error {
	_, err := r.register(OpUnregisterBuffers, nil, 0)
	return err
}

// CloneOptions choose the slots of [Ring.CloneBuffers]; the zero value clones
// the whole table into a ring without one. (6.12; parts and Replace 6.13)
type CloneOptions struct {
	SrcFirst, DstFirst, Count int
	Replace                   bool // overwrite slots that are in use
}

// CloneBuffers shares the registered buffers of src with r, which costs far
// less than registering them again. (6.12)
func (r *Ring) CloneBuffers(src *Ring, o CloneOptions) error {
	arg := &abi.CloneBuffers{SrcFd: uint32(src.FD()),
		SrcOff: uint32(o.SrcFirst), DstOff: uint32(o.DstFirst), Nr: uint32(o.Count)}
	if src.fd == nil {
		arg.SrcFd, arg.Flags = uint32(src.registered), abi.IORING_REGISTER_SRC_REGISTERED
	}
	if o.Replace {
		arg.Flags |= abi.IORING_REGISTER_DST_REPLACE
	}
	_, err := r.register(OpRegisterCloneBuffers, sys.Pointer(arg), 1)
	return err
}
