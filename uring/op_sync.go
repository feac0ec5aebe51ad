// SPDX-License-Identifier: MIT

package uring

import "github.com/ringside-io/ringside/internal/abi"

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
		// An empty range means the rest of the file at offset 0 only: at any
		// other the kernel would sync next to nothing. So the whole file then.
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
