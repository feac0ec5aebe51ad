// SPDX-License-Identifier: MIT

//go:build race

package sys

import (
	"runtime"
	"unsafe"
)

// RaceEnabled says that this is a build with the race detector, which then
// also learns what the kernel does, and in which released buffers are poisoned.
const RaceEnabled = true

// RaceRead tells the race detector that p is read on the calling goroutine. So
// are system calls that it does not see.
func RaceRead(p []byte) {
	if len(p) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
	}
}

// RaceWrite tells the race detector that p is written to on the calling
// goroutine.
func RaceWrite(p []byte) {
	if len(p) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
	}
}

// RaceRelease makes what the calling goroutine did happen before the next
// RaceAcquire of the same key.
func RaceRelease[T any](key *T) { runtime.RaceReleaseMerge(unsafe.Pointer(key)) }

// RaceAcquire is the other half of [RaceRelease].
func RaceAcquire[T any](key *T) { runtime.RaceAcquire(unsafe.Pointer(key)) }

// RaceBlind makes channels and locks that the calling goroutine uses order
// nothing in the eyes of the race detector, until RaceSee.
func RaceBlind() { runtime.RaceDisable() }

// RaceSee ends RaceBlind.
func RaceSee() { runtime.RaceEnable() }

// Poison overwrites memory that nobody may use any more.
func Poison(p []byte) {
	for i := range p {
		p[i] = 0xdb
	}
}
