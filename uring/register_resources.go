// SPDX-License-Identifier: MIT

package uring

import (
	"fmt"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// The fixed file table takes descriptors as 32-bit integers; these functions
// take Go's ints and convert them.

// SkipFile leaves a slot as it is in [Ring.UpdateFiles].
const SkipFile = abi.IORING_REGISTER_FILES_SKIP

func int32s(fds []int) []int32 {
	out := make([]int32, len(fds))
	for i, fd := range fds {
		out[i] = int32(fd)
	}
	return out
}

// RegisterFiles fills the ring's fixed file table; -1 leaves a slot empty. The
// table holds references of its own, so the descriptors may be closed. (5.1)
func (r *Ring) RegisterFiles(fds []int) error {
	table := int32s(fds)
	_, err := r.register(OpRegisterFiles, sys.SlicePointer(table), count(len(table)))
	return err
}

// RegisterFilesTagged is [Ring.RegisterFiles] with a tag for each slot: when
// the file of a slot whose tag is not 0 has left the table, and the kernel is
// done with it, a completion with that user data arrives. Before 6.13 only an
// update causes one, not [Ring.UnregisterFiles], which waits instead. There are
// as many tags as slots. (5.13)
func (r *Ring) RegisterFilesTagged(fds []int, tags []uint64) error {
	table := int32s(fds)
	if err := checkTags(tags, len(table)); err != nil {
		return err
	}
	return r.registerRsrc(OpRegisterFiles2, &abi.RsrcRegister{
		Nr: count(len(table)), Data: sys.SliceAddr(table), Tags: sys.SliceAddr(tags)}, table, tags)
}

// RegisterFilesSparse makes a table of n empty slots. (5.19)
func (r *Ring) RegisterFilesSparse(n int) error {
	return r.registerRsrc(OpRegisterFiles2, &abi.RsrcRegister{
		Nr: count(n), Flags: abi.IORING_RSRC_REGISTER_SPARSE})
}

// UpdateFiles writes descriptors into the table from slot first on: -1 empties
// a slot, SkipFile leaves it. It returns how many slots it wrote. Operations in
// flight keep the file they started with. (5.5)
func (r *Ring) UpdateFiles(first int, fds []int) (int, error) {
	table := int32s(fds)
	u := &abi.FilesUpdate{Offset: uint32(first), Data: sys.SliceAddr(table)}
	n, err := r.register(OpRegisterFilesUpdate, sys.Pointer(u), count(len(table)))
	keepAlive(table)
	return n, err
}

// UpdateFilesTagged is [Ring.UpdateFiles] with tags, which may be nil. (5.13)
func (r *Ring) UpdateFilesTagged(first int, fds []int, tags []uint64) (int, error) {
	table := int32s(fds)
	return r.updateRsrc(OpRegisterFilesUpdate2, first, sys.SliceAddr(table), len(table), tags, table)
}

// UnregisterFiles drops the table; slots in use by operations in flight live
// until those end. Kernels before 6.13 wait for that here. (5.1)
func (r *Ring) UnregisterFiles() error {
	_, err := r.register(OpUnregisterFiles, nil, 0)
	return err
}

// SetFileAllocRange tells the kernel from which slots of the table, n of them
// from first on, SlotAuto picks. (6.0)
func (r *Ring) SetFileAllocRange(first, n int) error {
	_, err := r.register(OpRegisterFileAllocRange,
		sys.Pointer(&abi.FileIndexRange{Off: uint32(first), Len: uint32(n)}), 0)
	return err
}

// registerRsrc issues FILES2 and BUFFERS2. What keep names stays reachable.
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
	u := &abi.RsrcUpdate2{Offset: uint32(first), Data: data, Tags: sys.SliceAddr(tags), Nr: count(n)}
	done, err := r.register(op, sys.Pointer(u), uint32(sys.Size[abi.RsrcUpdate2]()))
	keepAlive(keep)
	keepAlive(tags)
	return done, err
}

// checkTags wants one tag for each slot, or none at all.
func checkTags(tags []uint64, n int) error {
	if tags != nil && len(tags) != n {
		return fmt.Errorf("uring: %d tags for %d slots", len(tags), n)
	}
	return nil
}
