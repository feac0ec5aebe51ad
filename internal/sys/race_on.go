// SPDX-License-Identifier: MIT

//go:build race

package sys

import (
	"runtime"
	"syscall"
	"unsafe"
)

// RaceEnabled reports whether this is a build with the race detector. Such a build also
// reports the kernel's accesses to the detector, and poisons released buffers.
const RaceEnabled = true

// Faulty reports whether this build asks [Faults] before each call, as tests do that
// make the kernel fail.
const Faulty = runtime.GOOS == "linux"

// fault asks [Faults] about a call of n bytes, messages or events. It returns the number
// to use, or the errno that the caller returns instead of making the call.
func fault(name string, n int) (int, syscall.Errno) {
	if !Faulty {
		return n, 0
	}
	return faulty(name, n)
}

// faultRetry is [fault] for calls that are repeated when a signal interrupts them.
func faultRetry(name string, n int) (int, syscall.Errno) {
	for {
		if m, errno := fault(name, n); errno != syscall.EINTR {
			return m, errno
		}
	}
}

// faultSlice is [fault] for the length of s, which it shortens.
func faultSlice[T any](name string, s []T) ([]T, syscall.Errno) {
	n, errno := fault(name, len(s))
	if errno != 0 {
		return nil, errno
	}
	return s[:n], 0
}

// RaceRead reports a read of p on the calling goroutine to the race detector. It is for
// reads by system calls, which the detector does not see.
func RaceRead(p []byte) {
	if len(p) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
	}
}

// RaceWrite reports a write to p on the calling goroutine to the race detector.
func RaceWrite(p []byte) {
	if len(p) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
	}
}

// RaceRelease orders the earlier accesses of the calling goroutine before the next
// RaceAcquire of the same key.
func RaceRelease[T any](key *T) { runtime.RaceReleaseMerge(unsafe.Pointer(key)) }

// RaceAcquire is the other half of [RaceRelease].
func RaceAcquire[T any](key *T) { runtime.RaceAcquire(unsafe.Pointer(key)) }

// RaceBlind makes the race detector ignore the channels and locks that the calling
// goroutine uses, until RaceSee.
func RaceBlind() { runtime.RaceDisable() }

// RaceSee ends RaceBlind.
func RaceSee() { runtime.RaceEnable() }

// Poison overwrites memory that was released.
func Poison(p []byte) {
	for i := range p {
		p[i] = 0xdb
	}
}

// RaceVector returns the buffers of a vector of n parts at an address that an entry
// names, for [RaceRead] and [RaceWrite]. An operation must be using the vector, so that
// its memory is kept and does not move.
func RaceVector(addr uint64, n uint32) [][]byte {
	if addr == 0 {
		return nil
	}
	// Pointer arithmetic would fail in checkptr, which knows no object for the result.
	parts := unsafe.Slice(*(**iovec)(unsafe.Pointer(&addr)), n)
	bufs := make([][]byte, 0, n)
	for _, p := range parts {
		bufs = append(bufs, unsafe.Slice(p.base, p.len))
	}
	return bufs
}

// RaceMessage is [RaceVector] of the message at an address.
func RaceMessage(addr uint64) [][]byte {
	if addr == 0 {
		return nil
	}
	m := *(**msghdr)(unsafe.Pointer(&addr))
	v := uint64(uintptr(unsafe.Pointer(m.iov)))
	return RaceVector(v, uint32(m.iovlen))
}

// iovec is struct iovec, as every system with a race detector has it.
type iovec struct {
	base *byte
	len  uint64
}

// msghdr is the beginning of struct msghdr on Linux.
type msghdr struct {
	name    *byte
	namelen uint32
	iov     *iovec
	iovlen  uint64
}
