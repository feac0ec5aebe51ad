// SPDX-License-Identifier: MIT

package uring_test

import (
	"unsafe"

	"github.com/ringside-io/ringside/uring"
)

// The memory that the goldens of file operations point to. Go's collector does not move it,
// so its addresses can be used in literals.
var (
	goldenBuf  = make([]byte, 300)
	goldenIov  = []uring.Iovec{uring.NewIovec(goldenBuf[:10]), uring.NewIovec(goldenBuf[10:30])}
	goldenPath = mustPath("some/path")
	goldenNew  = mustPath("another/path")
	goldenName = mustPath("user.name")

	goldenBufAddr  = addressOf(unsafe.SliceData(goldenBuf))
	goldenIovAddr  = addressOf(unsafe.SliceData(goldenIov))
	goldenPathAddr = addressOfPath(goldenPath)
	goldenNewAddr  = addressOfPath(goldenNew)
	goldenNameAddr = addressOfPath(goldenName)
)

// minusOne is an offset of -1 as the kernel sees it.
const minusOne = 0xffffffff_ffffffff

// goldenLong claims a length that exceeds what the kernel transfers at once and, where an
// int is longer, 32 bits. Memory beyond its end must not be touched.
var goldenLong = func() []byte {
	n := uint64(1) << 32
	if unsafe.Sizeof(uintptr(0)) == 4 {
		n = 0x7ffff001
	}
	header := struct {
		p        *byte
		len, cap uintptr
	}{unsafe.SliceData(goldenBuf), uintptr(n), uintptr(n)}
	return *(*[]byte)(unsafe.Pointer(&header))
}()

func addressOf[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// addressOfPath returns the address of the bytes of p: a Path is one slice.
func addressOfPath(p uring.Path) uint64 {
	return addressOf(unsafe.SliceData(*(*[]byte)(unsafe.Pointer(&p))))
}

func mustPath(s string) uring.Path {
	p, err := uring.NewPath(s)
	if err != nil {
		panic(err)
	}
	return p
}
