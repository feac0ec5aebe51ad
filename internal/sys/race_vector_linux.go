// SPDX-License-Identifier: MIT

//go:build race

package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// RaceVector returns the buffers of a vector of n parts at an address that an
// entry names, for [RaceRead] and [RaceWrite]. The vector must be in use by an
// operation: then its memory is kept, and stays where it is.
func RaceVector(addr uint64, n uint32) [][]byte {
	if addr == 0 {
		return nil
	}
	// Not by arithmetic, which checkptr would take for a pointer out of nothing.
	parts := unsafe.Slice(*(**unix.Iovec)(unsafe.Pointer(&addr)), n)
	bufs := make([][]byte, 0, n)
	for _, p := range parts {
		bufs = append(bufs, unsafe.Slice(p.Base, p.Len))
	}
	return bufs
}

// RaceMessage is [RaceVector] of the message at an address.
func RaceMessage(addr uint64) [][]byte {
	if addr == 0 {
		return nil
	}
	m := *(**unix.Msghdr)(unsafe.Pointer(&addr))
	v := uint64(uintptr(unsafe.Pointer(m.Iov)))
	return RaceVector(v, uint32(m.Iovlen))
}
