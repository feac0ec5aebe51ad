// SPDX-License-Identifier: MIT

package kernelsim

import "github.com/ringside-io/ringside/internal/abi"

// Host runs operations on descriptors of the process. Read, Write and Sync are called at the end of
// the operation, by one goroutine at a time. They must not block for long. They return a count or a
// negative errno, like a completion.
type Host interface {
	Read(fd int, p []byte, off int64) int32
	Write(fd int, p []byte, off int64) int32
	Sync(fd int) int32
	// Hold returns a duplicate of the descriptor fd, or a negative errno. Drop closes the
	// duplicate.
	Hold(fd int) int32
	Drop(fd int)
}

// hold duplicates the descriptor of a running operation, because its ring has failed. The kernel
// has a reference to the file, so the user may now close the descriptor, and the number may be
// reused. While the ring works there is no duplicate, so that a descriptor closed under an
// operation is noticed. The caller holds mu.
func (o *op) hold() {
	if o.on != nil && o.on.kind == isHost && o.state != over && o.held == 0 {
		o.held = o.ring.base().k.o.Host.Hold(int(o.e.Fd))
	}
}

// drop closes the duplicate. The caller holds mu.
func (o *op) drop() {
	if o.held > 0 {
		o.ring.base().k.o.Host.Drop(int(o.held))
	}
	o.held = 0
}

// holdAll calls hold for all operations of a ring. The caller holds mu.
func (k *Kernel) holdAll(r front) {
	for _, o := range k.live.all {
		if o.ring == r {
			o.hold()
		}
	}
}

// askHost does the transfer of an operation on a descriptor of the process.
func (k *Kernel) askHost(o *op) int32 {
	fd := int(o.e.Fd)
	switch {
	case o.held < 0:
		return o.held
	case o.held > 0:
		fd = int(o.held)
	}
	if o.e.Opcode == abi.IORING_OP_FSYNC {
		return k.o.Host.Sync(fd)
	}
	n := o.length(int(o.e.Len))
	p := o.memory()[:n]
	if o.fills() {
		return k.o.Host.Read(fd, p, int64(o.e.Off))
	}
	return k.o.Host.Write(fd, p, int64(o.e.Off))
}
