// SPDX-License-Identifier: MIT

package sys

import "unsafe"

// outlet is where a pointer would escape to, were it ever open.
var outlet struct {
	open bool
	sink unsafe.Pointer
}

// escape makes the compiler place what p points at on the heap. A goroutine's
// stack moves when it grows; the kernel would go on writing to the old place.
func escape(p unsafe.Pointer) {
	if outlet.open {
		outlet.sink = p
	}
}

// Addr returns the address of *p for an entry that the kernel reads later, 0
// for nil. It forces *p onto the heap but does not keep it reachable.
func Addr[T any](p *T) uint64 {
	escape(unsafe.Pointer(p))
	return uint64(uintptr(unsafe.Pointer(p)))
}

// SliceAddr is [Addr] for the first element of s, 0 for a nil slice.
func SliceAddr[T any](s []T) uint64 {
	p := unsafe.SliceData(s)
	escape(unsafe.Pointer(p))
	return uint64(uintptr(unsafe.Pointer(p)))
}

// At returns n values at an address that an entry or an argument carries, for what
// plays the kernel in tests. It keeps nothing reachable. What checkptr has to look up
// for each address costs more than all else that a simulated kernel does with it.
//
//go:nocheckptr
func At[T any](addr uint64, n int) []T {
	p := uintptr(addr)
	return unsafe.Slice(*(**T)(unsafe.Pointer(&p)), n)
}

// Pointer returns p for the argument of a synchronous call.
func Pointer[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }

// SlicePointer returns the first element of s for the argument of a
// synchronous call, nil for an empty slice.
func SlicePointer[T any](s []T) unsafe.Pointer {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(s))
}

// Size returns the size of a T in bytes.
func Size[T any]() uintptr {
	var t T
	return unsafe.Sizeof(t)
}

// Bytes returns the memory of *p as bytes, sharing it.
func Bytes[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}

// AlignedBytes returns n bytes of Go memory whose address is a multiple of
// align, a power of two. O_DIRECT needs such buffers.
func AlignedBytes(n, align int) []byte {
	b := make([]byte, n+align-1)
	off := 0
	if r := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(align-1)); r != 0 {
		off = align - r
	}
	return b[off : off+n : off+n]
}

// Aligned reports whether the address of b is a multiple of align, a power of two.
func Aligned(b []byte, align int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(align-1) == 0
}

// UnsafePointer is unsafe.Pointer, for packages that only hand it on.
type UnsafePointer = unsafe.Pointer

// Within reports whether inner lies in outer, and how many bytes from its start.
func Within(inner, outer []byte) (int, bool) {
	a, b := uintptr(unsafe.Pointer(unsafe.SliceData(inner))), uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	if a < b || a-b > uintptr(len(outer)) || int(a-b)+len(inner) > len(outer) {
		return 0, false
	}
	return int(a - b), true
}

// StackID returns a number that tells goroutines apart as long as neither
// moves its stack: the place of the caller's frame. It is a hint: one goroutine
// may have several, two that never meet may have the same.
//
//go:noinline
func StackID() uintptr {
	var here byte
	return uintptr(unsafe.Pointer(&here))
}
