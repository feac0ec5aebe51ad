// SPDX-License-Identifier: MIT

package sys

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// outlet is a place to which pointers may escape. It is never used.
var outlet struct {
	open bool
	sink unsafe.Pointer
}

// escape makes the compiler place the memory that p points to on the heap. A goroutine's
// stack moves when it grows; the kernel would still write to the old place.
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

// At returns n values at an address in an entry or an argument, for the simulated kernels
// of tests. It keeps nothing reachable. checkptr is off, because its look-up of each
// address costs more than all other work of a simulated kernel with it.
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

// UnsafePointer is unsafe.Pointer, for packages that only pass it on.
type UnsafePointer = unsafe.Pointer

// Within reports whether inner lies in outer, and returns its offset in bytes.
func Within(inner, outer []byte) (int, bool) {
	a, b := uintptr(unsafe.Pointer(unsafe.SliceData(inner))), uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	if a < b || a-b > uintptr(len(outer)) || int(a-b)+len(inner) > len(outer) {
		return 0, false
	}
	return int(a - b), true
}

// Contains reports whether an address lies in b.
func Contains(b []byte, addr uintptr) bool {
	return addr-uintptr(unsafe.Pointer(unsafe.SliceData(b))) < uintptr(len(b))
}

// StackID returns a number that differs between goroutines as long as none of them
// moves its stack: the address of the caller's frame. It is a hint: one goroutine may
// have several, and two that do not run at the same time may have the same.
//
//go:noinline
func StackID() uintptr {
	var here byte
	return uintptr(unsafe.Pointer(&here))
}

// Region is memory outside of Go's heap, shared with the kernel. It stays
// valid until Unmap.
type Region struct {
	base unsafe.Pointer
	size uintptr
}

// Size returns the length in bytes.
func (r *Region) Size() int { return int(r.size) }

// Addr returns the address of the first byte.
func (r *Region) Addr() uint64 { return uint64(uintptr(r.base)) }

// Bytes returns the whole region.
func (r *Region) Bytes() []byte { return unsafe.Slice((*byte)(r.base), r.size) }

// Word returns the 32-bit word at off, which the kernel changes or watches:
// only atomic access is possible.
func (r *Region) Word(off uint32) *atomic.Uint32 { return &Slice[atomic.Uint32](r, off, 1)[0] }

// Slice returns n values of type T that begin off bytes into r. It panics when
// they do not fit, which means that the kernel's offsets were misread.
func Slice[T any](r *Region, off uint32, n int) []T {
	var t T
	end := uintptr(off) + uintptr(n)*unsafe.Sizeof(t)
	p := unsafe.Add(r.base, off)
	if n < 0 || end > r.size || uintptr(p)%unsafe.Alignof(t) != 0 {
		panic(fmt.Sprintf("sys: %d entries of %d bytes at %d lie outside of a region of %d bytes", n, unsafe.Sizeof(t), off, r.size))
	}
	return unsafe.Slice((*T)(p), n)
}

// PageCeil returns n rounded up to whole pages.
func PageCeil(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}

// StoreRelease stores a word that the kernel reads: earlier reads and writes of the
// process are complete when the kernel sees it. It is not a full barrier, unlike the
// atomic store on amd64, where every ordinary store has release semantics.
func StoreRelease(w *atomic.Uint32, v uint32) {
	if ordinaryStores {
		*(*uint32)(unsafe.Pointer(w)) = v
		return
	}
	w.Store(v)
}

// ordinaryStores reports whether StoreRelease may use them. In builds with the race
// detector a simulated kernel reads the word, and elsewhere the atomic store is as cheap.
const ordinaryStores = runtime.GOARCH == "amd64" && !Faulty
