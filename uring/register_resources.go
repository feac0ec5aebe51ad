// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// The fixed file table takes descriptors as 32-bit integers; these functions
// take Go's ints and convert them.

// SkipFile in the place of a descriptor makes [Ring.UpdateFiles] leave the slot unchanged.
const SkipFile = abi.IORING_REGISTER_FILES_SKIP

func int32s(fds []int) []int32 {
	out := make([]int32, len(fds))
	for i, fd := range fds {
		out[i] = int32(fd)
	}
	return out
}

// RegisterFiles fills the ring's fixed file table; -1 leaves a slot empty. The table
// keeps the files open, so the descriptors may be closed. (5.1)
//
// tags, if there are any, has a tag for each slot. When a file has left the table and the
// kernel no longer uses it, a completion arrives whose user data is the tag of the file. A
// tag of 0 requests none. Before 6.13 such completions follow only an update:
// [Ring.UnregisterFiles] waits instead. (tags: 5.13)
func (r *Ring) RegisterFiles(fds []int, tags ...uint64) error {
	table := int32s(fds)
	if len(tags) > 0 {
		return r.registerTagged(OpRegisterFiles2, sys.SliceAddr(table), len(table), tags, table)
	}
	_, err := r.register(OpRegisterFiles, sys.SlicePointer(table), count(len(table)))
	return err
}

// RegisterFilesSparse makes a table of n empty slots. (5.19)
func (r *Ring) RegisterFilesSparse(n int) error {
	return r.registerRsrc(OpRegisterFiles2, &abi.RsrcRegister{
		Nr: count(n), Flags: abi.IORING_RSRC_REGISTER_SPARSE})
}

// UpdateFiles writes descriptors into the table, beginning at slot first: -1 empties
// a slot, SkipFile leaves it. It returns how many slots it wrote. Operations in
// flight keep the file they started with. tags are as in [Ring.RegisterFiles]. (5.5)
func (r *Ring) UpdateFiles(first int, fds []int, tags ...uint64) (int, error) {
	table := int32s(fds)
	if len(tags) > 0 {
		return r.updateRsrc(OpRegisterFilesUpdate2, first, sys.SliceAddr(table), len(table), tags, table)
	}
	u := &abi.FilesUpdate{Offset: uint32(first), Data: sys.SliceAddr(table)}
	n, err := r.register(OpRegisterFilesUpdate, sys.Pointer(u), count(len(table)))
	keepAlive(table)
	return n, err
}

// UnregisterFiles drops the table; slots in use by operations in flight stay
// until those end. Kernels before 6.13 wait for that here. (5.1)
func (r *Ring) UnregisterFiles() error {
	_, err := r.register(OpUnregisterFiles, nil, 0)
	return err
}

// SetFileAllocRange limits the slots that SlotAuto picks to n slots of the table, from
// first on. (6.0)
func (r *Ring) SetFileAllocRange(first, n int) error {
	_, err := r.register(OpRegisterFileAllocRange,
		sys.Pointer(&abi.FileIndexRange{Off: uint32(first), Len: uint32(n)}), 0)
	return err
}

// registerTagged registers n files or buffers with tags. The values in keep stay reachable.
func (r *Ring) registerTagged(op RegisterOp, data uint64, n int, tags []uint64, keep any) error {
	if err := checkTags(tags, n); err != nil {
		return err
	}
	r.tagged = true
	return r.registerRsrc(op, &abi.RsrcRegister{Nr: count(n), Data: data, Tags: sys.SliceAddr(tags)}, keep, tags)
}

// registerRsrc issues FILES2 and BUFFERS2. The values in keep stay reachable.
func (r *Ring) registerRsrc(op RegisterOp, arg *abi.RsrcRegister, keep ...any) error {
	_, err := r.register(op, sys.Pointer(arg), uint32(sys.Size[abi.RsrcRegister]()))
	keepAlive(keep)
	return err
}

// updateRsrc issues FILES_UPDATE2 and BUFFERS_UPDATE.
func (r *Ring) updateRsrc(op RegisterOp, first int, data uint64, n int, tags []uint64, keep any) (int, error) {
	if err := checkTags(tags, n); err != nil {
		return 0, err
	}
	r.tagged = r.tagged || len(tags) > 0
	u := &abi.RsrcUpdate2{Offset: uint32(first), Data: data, Tags: sys.SliceAddr(tags), Nr: count(n)}
	done, err := r.register(op, sys.Pointer(u), uint32(sys.Size[abi.RsrcUpdate2]()))
	keepAlive(keep)
	keepAlive(tags)
	return done, err
}

// checkTags wants one tag for each slot, or none at all.
func checkTags(tags []uint64, n int) error {
	if len(tags) > 0 && len(tags) != n {
		return fmt.Errorf("uring: %d tags for %d slots", len(tags), n)
	}
	return nil
}

func keepAlive(v any) { runtime.KeepAlive(v) }

func iovecs(bufs [][]byte) []Iovec {
	out := make([]Iovec, len(bufs))
	for i, b := range bufs {
		out[i] = NewIovec(b)
	}
	return out
}

// RegisterBuffers pins buffers for [SQE.ReadFixed] and its relatives. The index of a
// buffer is its index in bufs. The buffers belong to the ring until
// [Ring.UnregisterBuffers] or Close, and until the operations that use them have
// completed. They count against RLIMIT_MEMLOCK (ENOMEM). Each may be up to 1 GiB long. A
// nil buffer leaves a slot empty (5.13). Memory outside of Go's heap avoids pinning
// heap pages for good. (5.1)
//
// tags, if there are any, has a tag for each buffer. When a buffer has left the table and the
// kernel no longer uses it, a completion arrives whose user data is the tag of the buffer. A
// tag of 0 requests none. Before 6.13 such completions follow only an update:
// [Ring.UnregisterBuffers] waits instead. (tags: 5.13)
func (r *Ring) RegisterBuffers(bufs [][]byte, tags ...uint64) error {
	iov := iovecs(bufs)
	if len(tags) > 0 {
		return r.registerTagged(OpRegisterBuffers2, sys.SliceAddr(iov), len(iov), tags, iov)
	}
	_, err := r.register(OpRegisterBuffers, sys.SlicePointer(iov), count(len(iov)))
	return err
}

// RegisterBuffersSparse makes a table of n empty slots. (5.19)
func (r *Ring) RegisterBuffersSparse(n int) error {
	return r.registerRsrc(OpRegisterBuffers2, &abi.RsrcRegister{
		Nr: count(n), Flags: abi.IORING_RSRC_REGISTER_SPARSE})
}

// UpdateBuffers replaces buffers, beginning at slot first; nil empties a slot. It
// returns how many slots it wrote. tags are as in [Ring.RegisterBuffers]. (5.13)
func (r *Ring) UpdateBuffers(first int, bufs [][]byte, tags ...uint64) (int, error) {
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

// ZCRX is a hardware receive queue whose packets the network card writes
// straight into memory of the process.
type ZCRX struct {
	// ID is the argument ifq of [SQE.RecvZC].
	ID uint32
	// Area is the memory in which data arrives. RefillRing is shared with the kernel:
	// the process gives parts of Area back through it. Head, Tail and RQEs are offsets
	// in RefillRing.
	Area, RefillRing []byte
	Head, Tail, RQEs uint32
	Token            uint64 // the area's part of a refill entry
	area, refill     *sys.Region
}

// RegisterZCRX claims receive queue rxq of network interface ifIndex, with an
// area of the given size in bytes and a refill ring of entries. It needs
// CAP_NET_ADMIN, a card with header split and flow steering, and a ring with
// DeferTaskrun and CQE32. (6.15)
func (r *Ring) RegisterZCRX(ifIndex, rxq, entries, areaSize int) (*ZCRX, error) {
	z := &ZCRX{}
	var err error
	if z.area, err = sys.MapAnon(areaSize, false); err != nil {
		return nil, err
	}
	const header = 4096
	if z.refill, err = sys.MapAnon(header+entries*16, false); err != nil {
		return nil, errors.Join(err, z.area.Unmap())
	}
	area := &abi.ZcrxAreaReg{Addr: z.area.Addr(), Len: uint64(z.area.Size())}
	region := &abi.RegionDesc{UserAddr: z.refill.Addr(), Size: uint64(z.refill.Size()), Flags: abi.IORING_MEM_REGION_TYPE_USER}
	arg := &abi.ZcrxIfqReg{IfIdx: uint32(ifIndex), IfRxq: uint32(rxq), RqEntries: uint32(entries),
		AreaPtr: sys.Addr(area), RegionPtr: sys.Addr(region)}
	_, err = r.register(OpRegisterZCRXIFQ, sys.Pointer(arg), 1)
	keepAlive(area)
	keepAlive(region)
	if err != nil {
		return nil, errors.Join(err, z.area.Unmap(), z.refill.Unmap())
	}
	r.extra = append(r.extra, z.area, z.refill)
	z.ID, z.Token = arg.ZcrxID, area.RqAreaToken
	z.Head, z.Tail, z.RQEs = arg.Offsets.Head, arg.Offsets.Tail, arg.Offsets.Rqes
	z.Area, z.RefillRing = z.area.Bytes(), z.refill.Bytes()
	return z, nil
}
