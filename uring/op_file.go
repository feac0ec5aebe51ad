// SPDX-License-Identifier: MIT

package uring

import (
	"math"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// CurrentPosition as an offset reads or writes at the file's own position
// (FeatRWCurPos, 5.6). Pipes and sockets need it or 0.
const CurrentPosition = -1

// Read reads into p at an offset, as pread(2): the result is the count, 0 at
// the end of the file. p belongs to the operation until its completion. (5.6)
func (e *SQE) Read(fd FD, p []byte, off int64) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_READ, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), Addr: sys.SliceAddr(p), Len: byteCount(len(p))}}
	return e
}

// ReadSelect reads at most n bytes into a provided buffer of the group; n = 0
// means the buffer's length. (5.7)
func (e *SQE) ReadSelect(fd FD, n int, off int64, group uint16) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_READ, Flags: fd.flags() | abi.IOSQE_BUFFER_SELECT, Fd: fd.n,
		Off: uint64(off), Len: byteCount(n), BufIndex: group}}
	return e
}

// ReadFixed is [SQE.Read] into a part of registered buffer number index. (5.1)
func (e *SQE) ReadFixed(fd FD, p []byte, off int64, index uint16) *SQE {
	e.Read(fd, p, off)
	e.raw.Opcode, e.raw.BufIndex = abi.IORING_OP_READ_FIXED, index
	return e
}

// Readv reads into several buffers, as preadv2(2) with its RWF_ flags. (5.1)
func (e *SQE) Readv(fd FD, iov []Iovec, off int64, flags RWFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_READV, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), Addr: sys.SliceAddr(iov), Len: count(len(iov)), OpFlags: uint32(flags)}}
	return e
}

// ReadvFixed is [SQE.Readv] into parts of one registered buffer. (6.15)
func (e *SQE) ReadvFixed(fd FD, iov []Iovec, off int64, flags RWFlags, index uint16) *SQE {
	e.Readv(fd, iov, off, flags)
	e.raw.Opcode, e.raw.BufIndex = abi.IORING_OP_READV_FIXED, index
	return e
}

// ReadMultishot reads a pollable file (pipe, eventfd, tty, inotify, tun) each
// time it has data, into provided buffers of the group, until a completion
// without CQEMore. For a file that cannot be polled the result is EBADFD. (6.7)
func (e *SQE) ReadMultishot(fd FD, group uint16) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_READ_MULTISHOT, Flags: fd.flags() | abi.IOSQE_BUFFER_SELECT,
		Fd: fd.n, Off: ^uint64(0), BufIndex: group}}
	return e
}

// SetRWFlags adds RWF_ flags to a read or write.
func (e *SQE) SetRWFlags(f RWFlags) *SQE { e.raw.OpFlags |= uint32(f); return e }

// RWFlags are the RWF_ flags of preadv2(2) and pwritev2(2).
type RWFlags uint32

const (
	RWHighPri   RWFlags = 0x01 // RWF_HIPRI: implied by IOPoll, EINVAL in other rings (4.6)
	RWDSync     RWFlags = 0x02 // RWF_DSYNC: the write is durable as with O_DSYNC (4.7)
	RWSync      RWFlags = 0x04 // RWF_SYNC: as with O_SYNC (4.7)
	RWNoWait    RWFlags = 0x08 // RWF_NOWAIT: EAGAIN instead of waiting (4.14)
	RWAppend    RWFlags = 0x10 // RWF_APPEND (4.16)
	RWNoAppend  RWFlags = 0x20 // RWF_NOAPPEND (6.9)
	RWAtomic    RWFlags = 0x40 // RWF_ATOMIC: torn-write protection (6.11)
	RWDontCache RWFlags = 0x80 // RWF_DONTCACHE: drop from the page cache after use (6.14)
)

// AttrPI is protection information that goes with a read or write (struct
// io_uring_attr_pi): guard, application and reference tags in Buf.
type AttrPI struct {
	pi  abi.AttrPI
	buf []byte
}

// Set fills a. buf holds the tags and belongs to the operation until its completion.
func (a *AttrPI) Set(flags, appTag uint16, seed uint64, buf []byte) {
	*a = AttrPI{abi.AttrPI{Flags: flags, AppTag: appTag, Seed: seed,
		Addr: sys.SliceAddr(buf), Len: byteCount(len(buf))}, buf}
}

// SetAttr attaches protection information to a read or write of a block device
// that has it. (6.14, FeatRWAttr)
func (e *SQE) SetAttr(a *AttrPI) *SQE {
	e.raw.Addr3, e.raw.Pad2 = sys.Addr(&a.pi), abi.IORING_RW_ATTR_FLAG_PI
	return e
}

// Write writes p at an offset, as pwrite(2): the result is the count, which may
// be short. p belongs to the operation until its completion. (5.6)
func (e *SQE) Write(fd FD, p []byte, off int64) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_WRITE, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), Addr: sys.SliceAddr(p), Len: byteCount(len(p))}}
	return e
}

// WriteFixed is [SQE.Write] from a part of registered buffer number index.
// (5.1)
func (e *SQE) WriteFixed(fd FD, p []byte, off int64, index uint16) *SQE {
	e.Write(fd, p, off)
	e.raw.Opcode, e.raw.BufIndex = abi.IORING_OP_WRITE_FIXED, index
	return e
}

// Writev writes several buffers, as pwritev2(2) with its RWF_ flags. (5.1)
func (e *SQE) Writev(fd FD, iov []Iovec, off int64, flags RWFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_WRITEV, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), Addr: sys.SliceAddr(iov), Len: count(len(iov)), OpFlags: uint32(flags)}}
	return e
}

// WritevFixed is [SQE.Writev] from parts of one registered buffer. (6.15)
func (e *SQE) WritevFixed(fd FD, iov []Iovec, off int64, flags RWFlags, index uint16) *SQE {
	e.Writev(fd, iov, off, flags)
	e.raw.Opcode, e.raw.BufIndex = abi.IORING_OP_WRITEV_FIXED, index
	return e
}

// Fsync is fsync(2), or fdatasync(2) when dataOnly. A worker thread runs it.
// (5.1)
func (e *SQE) Fsync(fd FD, dataOnly bool) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FSYNC, Flags: fd.flags(), Fd: fd.n}}
	if dataOnly {
		e.raw.OpFlags = abi.IORING_FSYNC_DATASYNC
	}
	return e
}

// FsyncRange is [SQE.Fsync] of n bytes at an offset; n = 0 means to the end of
// the file. Many file systems sync more than they are asked to. (5.1)
func (e *SQE) FsyncRange(fd FD, off int64, n uint32, dataOnly bool) *SQE {
	e.Fsync(fd, dataOnly)
	if n != 0 {
		// The kernel takes an empty range for the rest of the file at offset 0
		// only. At any other offset it would sync next to nothing, so the whole
		// file is synced then.
		e.raw.Off, e.raw.Len = uint64(off), n
	}
	return e
}

// SyncFileRange is sync_file_range(2), a hint for writeback that makes nothing
// durable; n = 0 means to the end of the file. A worker thread runs it. (5.2)
func (e *SQE) SyncFileRange(fd FD, off int64, n uint32, flags uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_SYNC_FILE_RANGE, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), Len: n, OpFlags: flags}}
	return e
}

// Fallocate is fallocate(2) for n bytes at an offset, with FALLOC_FL_ bits as
// mode. A worker thread runs it. (5.6)
func (e *SQE) Fallocate(fd FD, mode uint32, off, n int64) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FALLOCATE, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), Addr: uint64(n), Len: mode}}
	return e
}

// Ftruncate is ftruncate(2) to a size in bytes. A worker thread runs it. (6.9)
func (e *SQE) Ftruncate(fd FD, size int64) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FTRUNCATE, Flags: fd.flags(), Fd: fd.n, Off: uint64(size)}}
	return e
}

// Fadvise is posix_fadvise(2) for n bytes at an offset; n = 0 means to the end of
// the file. Kernels before 6.10 support lengths of 32 bits: for 4 GiB or more the result
// is EINVAL. (5.6)
func (e *SQE) Fadvise(fd FD, off, n int64, advice int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FADVISE, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), OpFlags: uint32(advice)}}
	if uint64(n) <= math.MaxUint32 {
		e.raw.Len = uint32(n)
	} else {
		e.raw.Addr = uint64(n)
	}
	return e
}

// Madvise is madvise(2) for whole pages of memory that does not belong to Go's
// heap. Kernels before 6.10 support lengths of 32 bits: for 4 GiB or more the result is
// EINVAL. (5.6)
func (e *SQE) Madvise(p []byte, advice int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_MADVISE, Fd: -1,
		Addr: sys.SliceAddr(p), OpFlags: uint32(advice)}}
	if n := uint64(len(p)); n <= math.MaxUint32 {
		e.raw.Len = uint32(n)
	} else {
		e.raw.Off = n
	}
	return e
}

// SpliceFlags are the SPLICE_F_ flags of splice(2) and tee(2).
type SpliceFlags uint32

const (
	SpliceMove     SpliceFlags = 1 // SPLICE_F_MOVE
	SpliceNonblock SpliceFlags = 2 // SPLICE_F_NONBLOCK
	SpliceMore     SpliceFlags = 4 // SPLICE_F_MORE
)

// Splice is splice(2): n bytes from in to out, one of which is a pipe. An
// offset of a pipe must be [CurrentPosition], which for a file means its own
// position. A worker thread runs it. (5.7)
func (e *SQE) Splice(in FD, inOff int64, out FD, outOff int64, n int, flags SpliceFlags) *SQE {
	e.Tee(in, out, n, flags)
	e.raw.Opcode, e.raw.Off, e.raw.Addr = abi.IORING_OP_SPLICE, uint64(outOff), uint64(inOff)
	return e
}

// Tee is tee(2): it copies n bytes from one pipe to another without consuming
// them. (5.8)
func (e *SQE) Tee(in, out FD, n int, flags SpliceFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_TEE, Flags: out.flags(), Fd: out.n,
		Len: byteCount(n), OpFlags: uint32(flags), FileIndex: uint32(in.n)}}
	if in.fixed {
		e.raw.OpFlags |= abi.SPLICE_F_FD_IN_FIXED
	}
	return e
}
