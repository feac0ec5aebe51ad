// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Path is a NUL-terminated path for the operations that take one. Make it once
// and keep it reachable until the operation has been submitted (with SQPOLL,
// completed).
type Path struct{ b []byte }

// NewPath converts a path. A path with a NUL byte is an error.
func NewPath(s string) (Path, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return Path{}, errors.New("uring: path contains a NUL byte")
	}
	b := make([]byte, len(s)+1)
	copy(b, s)
	return Path{b}, nil
}

// Iovec is one part of a vectored transfer (struct iovec). It keeps the buffer
// reachable as long as the slice that holds it is.
type Iovec struct {
	base *byte
	len  uintptr
}

// NewIovec returns the Iovec of a buffer.
func NewIovec(p []byte) Iovec {
	if len(p) == 0 {
		return Iovec{}
	}
	return Iovec{&p[0], uintptr(len(p))}
}

// Timespec is a time for a timeout (struct __kernel_timespec).
type Timespec struct {
	Sec, Nsec int64
}

// NewTimespec converts a duration.
func NewTimespec(d time.Duration) Timespec { return Timespec(timespec(d)) }

// OpenHow are the arguments of [SQE.OpenAt2] (struct open_how); see openat2(2).
type OpenHow struct {
	Flags   uint64 // O_ flags, as in open(2)
	Mode    uint64 // of a file that is created, otherwise 0
	Resolve uint64 // RESOLVE_ flags
}

// FutexWaitv is one futex of [SQE.FutexWaitv] (struct futex_waitv). It holds
// the address of the word only: keep the word reachable until the completion.
type FutexWaitv struct{ w abi.FutexWaitv }

// NewFutexWaitv returns a FutexWaitv that waits while *word is val. flags are FUTEX2_
// flags; NewFutexWaitv adds the flag for a word of 32 bits.
func NewFutexWaitv(word *atomic.Uint32, val uint32, flags uint32) FutexWaitv {
	return FutexWaitv{abi.FutexWaitv{Val: uint64(val), Uaddr: sys.Addr(word), Flags: flags | futex2Size32}}
}

// futex2Size32 is FUTEX2_SIZE_U32.
const futex2Size32 = 2

// timespec converts a duration. The kernel wants nanoseconds that are not
// negative, and reads 32 bits of them for 32-bit callers.
func timespec(d time.Duration) abi.Timespec {
	t := abi.Timespec{Sec: int64(d / time.Second), Nsec: int64(d % time.Second)}
	if t.Nsec < 0 {
		t.Sec--
		t.Nsec += int64(time.Second)
	}
	return t
}
