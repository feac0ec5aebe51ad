// SPDX-License-Identifier: MIT

package uring

import (
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
// without CQEMore. A file that cannot be polled is EBADFD. (6.7)
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
	RWDSync     RWFlags = 0x02 // RWF_DSYNC: the write is durable like with O_DSYNC (4.7)
	RWSync      RWFlags = 0x04 // RWF_SYNC: like with O_SYNC (4.7)
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

// Set fills a. Buf holds the tags and belongs to the operation.
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
