// SPDX-License-Identifier: MIT

package kernelsim

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
)

// object is a file, a pipe or a descriptor of the process.
type object struct {
	fd    int
	kind  kind
	count uint64 // operations so far, which determine their faults

	data []byte // of a file

	sent, taken uint64 // bytes into and out of a pipe; signals of a wake-up
	waiting     []*op  // reads that wait for data
	polls       []*op
}

type kind int

const (
	isNothing kind = iota // operations that need no descriptor
	isFile
	isPipe
	isHost       // a descriptor of the process: see [Host]
	isDescriptor // a descriptor, for rings below package uring
)

// add makes an object. The caller holds mu.
func (k *Kernel) add(kind kind) *object {
	on := &object{fd: k.o.FirstFD + len(k.objects), kind: kind}
	k.objects = append(k.objects, on)
	return on
}

func (k *Kernel) nothing() *object {
	if len(k.objects) == 0 {
		k.add(isNothing)
	}
	return k.objects[0]
}

// object returns the object of an operation's descriptor, or nil.
func (k *Kernel) object(o *op) *object {
	fd, kind := o.e.Fd, isDescriptor
	if !o.ring.base().hooked {
		i := int(fd) - k.o.FirstFD
		switch {
		case i > 0 && i < len(k.objects):
			return k.objects[i]
		case k.o.Host == nil || fd < 0 || i >= 0:
			return nil
		}
		kind = isHost
	}
	on := k.outside[fd]
	if on == nil || on.kind != kind {
		on = &object{fd: int(fd), kind: kind}
		k.outside[fd] = on
	}
	return on
}

// takes returns the errno with which an object rejects an operation, or 0.
func (on *object) takes(o *op) syscall.Errno {
	is := func(ops ...uint8) syscall.Errno {
		for _, op := range ops {
			if o.e.Opcode == op {
				return 0
			}
		}
		return syscall.EINVAL
	}
	switch on.kind {
	case isNothing:
		return is(abi.IORING_OP_NOP, abi.IORING_OP_TIMEOUT, abi.IORING_OP_ASYNC_CANCEL, abi.IORING_OP_POLL_REMOVE)
	case isDescriptor:
		return o.open()
	}
	if !o.ring.base().hasRegistered(o) {
		return syscall.EFAULT
	}
	switch {
	case on.kind != isPipe && is(abi.IORING_OP_READ_FIXED, abi.IORING_OP_WRITE_FIXED) == 0:
		return 0
	case on.kind == isHost:
		return is(abi.IORING_OP_READ, abi.IORING_OP_WRITE, abi.IORING_OP_FSYNC)
	}
	return is(abi.IORING_OP_READ, abi.IORING_OP_WRITE, abi.IORING_OP_POLL_ADD)
}

// own returns one of the kernel's own objects by its descriptor.
func (k *Kernel) own(fd int) *object { return k.objects[fd-k.o.FirstFD] }

// File makes a file with the given content, which the kernel owns from then on, and returns its
// descriptor. Files do not grow.
func (k *Kernel) File(content []byte) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	on := k.add(isFile)
	on.data = content
	return on.fd
}

// Content returns a copy of the content of a file.
func (k *Kernel) Content(fd int) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]byte(nil), k.own(fd).data...)
}

// Pipe makes a pipe and returns its descriptor. Its n-th byte is [PipeByte].
func (k *Kernel) Pipe() int { return k.PipeFrom(0) }

// PipeFrom makes a pipe that begins with the byte of the given number, so that different pipes can
// have different bytes.
func (k *Kernel) PipeFrom(n uint64) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	on := k.add(isPipe)
	on.sent, on.taken = n, n
	return on.fd
}

// PipeByte returns the n-th byte of every pipe.
func PipeByte(n uint64) byte { return pipeTable[pipePlace(n)] }

// PipeBytes fills p with the bytes of every pipe from the n-th on.
func PipeBytes(p []byte, n uint64) {
	for len(p) > 0 {
		// Neighbouring bytes are neighbours in the table, except at the end of a run.
		run := min(uint64(len(p)), pipeRun-n%pipeRun)
		copy(p[:run], pipeTable[pipePlace(n):])
		p, n = p[run:], n+run
	}
}

// pipeRun is the number of bytes of a pipe that are contiguous in the table. Each run begins at
// another place, so that equal runs are far apart.
const pipeRun = 1 << 8

var pipeTable = func() (t [1<<14 + pipeRun]byte) {
	for i := range t {
		t[i] = byte(mix(uint64(i)))
	}
	return t
}()

func pipePlace(n uint64) uint64 { return mix(n/pipeRun)%(1<<14) + n%pipeRun }

// Feed adds n bytes to a pipe.
func (k *Kernel) Feed(fd int, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	on := k.own(fd)
	on.sent += uint64(n)
	k.arrived(on)
}

// Taken returns how many bytes of a pipe have been read.
func (k *Kernel) Taken(fd int) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.own(fd).taken
}

// arrived serves the operations that wait for data of an object. The caller holds mu.
func (k *Kernel) arrived(on *object) {
	for _, o := range on.polls {
		k.soon(0, func() { k.pollEvent(o) })
	}
	for range on.waiting {
		k.soon(0, func() { k.serve(on) })
	}
}

// serve gives data to one of the waiting operations. The caller holds mu.
func (k *Kernel) serve(on *object) {
	if len(on.waiting) == 0 || on.sent == on.taken {
		return
	}
	o := on.waiting[k.order.IntN(len(on.waiting))]
	o.leave()
	n := o.length(int(min(uint64(o.e.Len), on.sent-on.taken)))
	p := o.memory()[:n]
	PipeBytes(p, on.taken)
	on.taken += uint64(n)
	k.result(o).Data = append([]byte(nil), p...)
	k.finish(o, int32(n))
}

// EventShift is the lowest bit of the event number in the result of a multishot poll of a pipe. The
// bits below are POLLIN. The event number counts the events of that operation before this one.
const EventShift = 4

// pollEvent reports that there is data.
func (k *Kernel) pollEvent(o *op) {
	if o.state != waiting {
		return
	}
	switch {
	case !o.multishot():
		k.finish(o, 1)
	case o.effect.noBuffers && o.shots > 0:
		k.finish(o, -int32(syscall.ENOBUFS))
	default:
		k.shot(o, 1|o.shots<<EventShift, 0)
	}
}
