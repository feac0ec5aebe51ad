// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// OpenAt is openat(2) relative to the directory dir or [AtCWD]. The result is
// the descriptor; nothing closes it when nobody takes it. Add O_CLOEXEC to the
// flags. (5.6)
func (e *SQE) OpenAt(dir int, path Path, flags int, mode uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_OPENAT, Fd: int32(dir),
		Addr: sys.SliceAddr(path.b), Len: mode, OpFlags: uint32(flags)}}
	return e
}

// OpenAtDirect is [SQE.OpenAt] into the fixed file table. O_CLOEXEC is not
// allowed. (5.15)
func (e *SQE) OpenAtDirect(dir int, path Path, flags int, mode uint32, slot Slot) *SQE {
	e.OpenAt(dir, path, flags, mode)
	e.raw.FileIndex = slot.index()
	return e
}

// OpenAt2 is openat2(2). (5.6)
func (e *SQE) OpenAt2(dir int, path Path, how *OpenHow) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_OPENAT2, Fd: int32(dir),
		Off: sys.Addr(how), Addr: sys.SliceAddr(path.b), Len: uint32(sys.Size[OpenHow]())}}
	return e
}

// OpenAt2Direct is [SQE.OpenAt2] into the fixed file table. (5.15)
func (e *SQE) OpenAt2Direct(dir int, path Path, how *OpenHow, slot Slot) *SQE {
	e.OpenAt2(dir, path, how)
	e.raw.FileIndex = slot.index()
	return e
}

// Close closes a descriptor of the process. Operations on it that are in flight
// go on: cancel them first. (5.6)
func (e *SQE) Close(fd int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_CLOSE, Fd: int32(fd)}}
	return e
}

// CloseDirect empties a slot of the fixed file table. (5.15)
func (e *SQE) CloseDirect(slot int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_CLOSE, FileIndex: Slot(slot).index()}}
	return e
}

// FixedFDInstall makes an ordinary descriptor of a slot of the fixed file
// table; the result is its number. It is closed on exec unless keepOnExec.
// (6.8)
func (e *SQE) FixedFDInstall(slot int, keepOnExec bool) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FIXED_FD_INSTALL, Flags: abi.IOSQE_FIXED_FILE, Fd: int32(slot)}}
	if keepOnExec {
		e.raw.OpFlags = abi.IORING_FIXED_FD_NO_CLOEXEC
	}
	return e
}

// FilesUpdate writes descriptors into the fixed file table from slot first on;
// -1 empties a slot. The result is how many were written. With first =
// [FilesAlloc] the kernel picks the slots and writes their numbers into fds.
// The slice belongs to the operation until its completion. (5.6)
func (e *SQE) FilesUpdate(fds []int32, first int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FILES_UPDATE, Fd: -1,
		Off: uint64(uint32(first)), Addr: sys.SliceAddr(fds), Len: count(len(fds))}}
	return e
}

// FilesAlloc lets [SQE.FilesUpdate] pick slots. (6.0)
const FilesAlloc = -1

// Pipe is pipe2(2); the descriptors are in fds after the completion, to which
// the array belongs until then. (6.16)
func (e *SQE) Pipe(fds *[2]int32, flags uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_PIPE, Addr: sys.Addr(fds), OpFlags: flags}}
	return e
}

// PipeDirect is [SQE.Pipe] into the fixed file table: into slot and slot+1, or
// with SlotAuto into slots whose numbers are in fds afterwards. (6.16)
func (e *SQE) PipeDirect(fds *[2]int32, flags uint32, slot Slot) *SQE {
	e.Pipe(fds, flags)
	e.raw.FileIndex = slot.index()
	return e
}
