// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// ProvideBuffers gives n buffers of size bytes each, which lie one after the
// other in p, to a group, with ids from first on. This is the older form;
// prefer [Ring.NewBufRing]. p belongs to the kernel until each buffer has come
// back or was removed. What does not fit into p is left out. (5.7)
func (e *SQE) ProvideBuffers(p []byte, size, n int, group, first uint16) *SQE {
	size = max(size, 0)
	n = min(n, len(p)/max(size, 1))
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_PROVIDE_BUFFERS, Fd: int32(n), Off: uint64(first),
		Addr: sys.SliceAddr(p), Len: byteCount(size), BufIndex: group}}
	return e
}

// RemoveBuffers takes up to n buffers back from a group filled by
// ProvideBuffers; the result is how many. (5.7)
func (e *SQE) RemoveBuffers(n int, group uint16) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_REMOVE_BUFFERS, Fd: int32(n), BufIndex: group}}
	return e
}
