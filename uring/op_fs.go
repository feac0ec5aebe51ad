// SPDX-License-Identifier: MIT

package uring

import (
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// OpenAt is openat(2) relative to the directory dir or [AtCWD]. The result is
// the descriptor, which the caller closes. Add O_CLOEXEC to the
// flags. (5.6)
func (e *SQE) OpenAt(dir int, path Path, flags int, mode uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_OPENAT, Fd: int32(dir),
		Addr: sys.SliceAddr(path.b), Len: mode, OpFlags: uint32(flags)}}
	return e
}

// OpenAt2 is openat2(2). (5.6)
func (e *SQE) OpenAt2(dir int, path Path, how *OpenHow) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_OPENAT2, Fd: int32(dir),
		Off: sys.Addr(how), Addr: sys.SliceAddr(path.b), Len: uint32(sys.Size[OpenHow]())}}
	return e
}

// Close closes a descriptor of the process. It does not end operations in flight on the
// descriptor: cancel them first. (5.6)
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

// FixedFDInstall makes an ordinary descriptor for a slot of the fixed file
// table; the result is the descriptor. It is closed on exec unless keepOnExec.
// (6.8)
func (e *SQE) FixedFDInstall(slot int, keepOnExec bool) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FIXED_FD_INSTALL, Flags: abi.IOSQE_FIXED_FILE, Fd: int32(slot)}}
	if keepOnExec {
		e.raw.OpFlags = abi.IORING_FIXED_FD_NO_CLOEXEC
	}
	return e
}

// FilesUpdate writes descriptors into the fixed file table, beginning at slot first;
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

// Pipe is pipe2(2); the descriptors are in fds after the completion. The array belongs
// to the operation until then. (6.16)
func (e *SQE) Pipe(fds *[2]int32, flags uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_PIPE, Addr: sys.Addr(fds), OpFlags: flags}}
	return e
}

// Statx is statx(2): flags are AT_ flags, mask STATX_ bits. st belongs to the
// operation until its completion. (5.6)
func (e *SQE) Statx(dir int, path Path, flags int, mask uint32, st *Statx) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_STATX, Fd: int32(dir),
		Off: sys.Addr(st), Addr: sys.SliceAddr(path.b), Len: mask, OpFlags: uint32(flags)}}
	return e
}

// RenameAt is renameat2(2). (5.11)
func (e *SQE) RenameAt(oldDir int, oldPath Path, newDir int, newPath Path, flags uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_RENAMEAT, Fd: int32(oldDir), Off: sys.SliceAddr(newPath.b),
		Addr: sys.SliceAddr(oldPath.b), Len: uint32(int32(newDir)), OpFlags: flags}}
	return e
}

// UnlinkAt is unlinkat(2); AT_REMOVEDIR removes a directory. (5.11)
func (e *SQE) UnlinkAt(dir int, path Path, flags int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_UNLINKAT, Fd: int32(dir),
		Addr: sys.SliceAddr(path.b), OpFlags: uint32(flags)}}
	return e
}

// MkdirAt is mkdirat(2). (5.15)
func (e *SQE) MkdirAt(dir int, path Path, mode uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_MKDIRAT, Fd: int32(dir), Addr: sys.SliceAddr(path.b), Len: mode}}
	return e
}

// SymlinkAt is symlinkat(2): it makes a link in dir that points at target.
// (5.15)
func (e *SQE) SymlinkAt(target Path, dir int, link Path) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_SYMLINKAT, Fd: int32(dir),
		Off: sys.SliceAddr(link.b), Addr: sys.SliceAddr(target.b)}}
	return e
}

// LinkAt is linkat(2). (5.15)
func (e *SQE) LinkAt(oldDir int, oldPath Path, newDir int, newPath Path, flags int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_LINKAT, Fd: int32(oldDir), Off: sys.SliceAddr(newPath.b),
		Addr: sys.SliceAddr(oldPath.b), Len: uint32(int32(newDir)), OpFlags: uint32(flags)}}
	return e
}

// Fsetxattr is fsetxattr(2); flags are XATTR_CREATE or XATTR_REPLACE. (5.19;
// slots of the fixed file table 6.13, before that EBADF)
func (e *SQE) Fsetxattr(fd FD, name Path, value []byte, flags int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FSETXATTR, Flags: fd.flags(), Fd: fd.n,
		Off: sys.SliceAddr(value), Addr: sys.SliceAddr(name.b), Len: count(len(value)), OpFlags: uint32(flags)}}
	return e
}

// Setxattr is setxattr(2), which follows symbolic links. (5.19)
func (e *SQE) Setxattr(path, name Path, value []byte, flags int) *SQE {
	e.Fsetxattr(FD{}, name, value, flags)
	e.raw.Opcode, e.raw.Addr3 = abi.IORING_OP_SETXATTR, sys.SliceAddr(path.b)
	return e
}

// Fgetxattr is fgetxattr(2): it stores the attribute in value, and the result is its
// length. With an empty value it returns the length only. value belongs to the
// operation until its completion. (5.19; slots of the fixed file table 6.13,
// before that EBADF)
func (e *SQE) Fgetxattr(fd FD, name Path, value []byte) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FGETXATTR, Flags: fd.flags(), Fd: fd.n,
		Off: sys.SliceAddr(value), Addr: sys.SliceAddr(name.b), Len: count(len(value))}}
	return e
}

// Getxattr is getxattr(2), which follows symbolic links, with the result of
// [SQE.Fgetxattr]. (5.19)
func (e *SQE) Getxattr(path, name Path, value []byte) *SQE {
	e.Fgetxattr(FD{}, name, value)
	e.raw.Opcode, e.raw.Addr3 = abi.IORING_OP_GETXATTR, sys.SliceAddr(path.b)
	return e
}

// Statx is struct statx, which [SQE.Statx] fills; see statx(2). It has
// room for the fields that newer kernels add.
type Statx struct {
	Mask           uint32
	Blksize        uint32
	Attributes     uint64
	Nlink          uint32
	UID, GID       uint32
	Mode           uint16 // file type and permissions, as in stat(2)
	_              uint16
	Ino            uint64
	Size           uint64 // bytes
	Blocks         uint64 // of 512 bytes
	AttributesMask uint64
	Atime          StatxTime
	Btime          StatxTime // creation
	Ctime          StatxTime
	Mtime          StatxTime
	RdevMajor      uint32
	RdevMinor      uint32
	DevMajor       uint32
	DevMinor       uint32
	MntID          uint64
	DioMemAlign    uint32 // bytes; 0: no O_DIRECT (6.1)
	DioOffsetAlign uint32 // bytes (6.1)
	_              [12]uint64
}

// StatxTime is struct statx_timestamp.
type StatxTime struct {
	Sec  int64
	Nsec uint32
	_    int32
}

// Time converts t.
func (t StatxTime) Time() time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }
