// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

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

// Fgetxattr is fgetxattr(2); the result is the length of the value, which is
// in value; with an empty value only the length. value belongs to the
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
