// SPDX-License-Identifier: MIT

package sys

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"
)

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

// PageSize returns n rounded up to whole pages.
func PageCeil(n int) int {
	page := pageSize()
	return (n + page - 1) / page * page
}

// StoreRelease stores a word that the kernel reads: what the process has read and
// written before is done when the kernel sees it. It is not a full barrier, as
// the atomic store on amd64 is, where every ordinary store releases.
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
