// SPDX-License-Identifier: MIT

package simring

import "github.com/ringside-io/ringside/internal/abi"

// Host carries out operations on descriptors of the process. Each is called at
// the very end of the operation, by one goroutine at a time, must not block for
// long, and answers as a completion does: with a count, or a negative errno.
type Host interface {
	Read(fd int, p []byte, off int64) int32
	Write(fd int, p []byte, off int64) int32
	Sync(fd int) int32
}

// takes says whether an object knows the operation.
func (on *object) takes(op uint8) bool {
	if on.kind == isHost {
		return op == abi.IORING_OP_READ || op == abi.IORING_OP_WRITE || op == abi.IORING_OP_FSYNC
	}
	return op != abi.IORING_OP_FSYNC
}

// askHost does the transfer of an operation on a descriptor of the process.
func (k *Kernel) askHost(o *op) int32 {
	fd := int(o.sqe.Raw().Fd)
	if o.sqe.Raw().Opcode == abi.IORING_OP_FSYNC {
		return k.o.Host.Sync(fd)
	}
	n := o.length(int(o.sqe.Raw().Len))
	p := o.memory()[:n]
	if o.sqe.Raw().Opcode == abi.IORING_OP_READ {
		return k.o.Host.Read(fd, p, int64(o.sqe.Raw().Off))
	}
	return k.o.Host.Write(fd, p, int64(o.sqe.Raw().Off))
}
