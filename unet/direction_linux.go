// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// direction is the state of reading from, or writing to, a socket.
type direction struct {
	turn    sync.Mutex    // held by the one call that is in progress
	ready   atomic.Bool   // a system call may succeed
	expired atomic.Bool   // the deadline has passed
	state   waitState     // guarded by the socket's mu
	mode    atomic.Uint32 // one of the modes below, the same for both directions
	// wake has a capacity of 1 and gets one value for each wait. A WaitGroup
	// takes less memory but wakes more slowly.
	wake chan struct{}
}

const (
	usual    = iota // the loop watches the socket, or it waits alone
	mayLeave        // the same, and the socket may begin to wait alone; see leaveLoop
	young           // package net still has the socket; see settle
)

type waitState uint8

const (
	idle        waitState = iota
	parked                // a call waits; the goroutine that sets idle wakes it
	taken                 // the loop receives for the reader; only the loop changes the state
	parkedAlone           // a call waits in the netpoller; see alone
	interrupted           // the same, and a deadline has been set to end its wait
)

// delivery passes a buffer from a waiting reader to the loop and the result back.
// It belongs to the loop while the state is taken, otherwise to the reader.
type delivery struct {
	buf  []byte // where to receive; nil if the reader receives for itself
	res  int32  // see result
	done bool   // res is the result of a receive into buf
	// counted is set if the loop counts the reader in starting.
	counted bool
}

// result returns the result of a receive as a CQE has it: the number of bytes, or an
// error as a negative number.
func result(n int, errno syscall.Errno) int32 {
	if errno != 0 {
		return -int32(errno)
	}
	return int32(min(n, math.MaxInt32)) // at most maxTransfer
}

// split is the reverse of result.
func split(res int32) (n int, errno syscall.Errno) {
	if res < 0 {
		return 0, syscall.Errno(-res)
	}
	return int(res), 0
}

// syscallError converts an error of package sys to an *os.SyscallError, by which
// net.OpError recognizes temporary errors.
func syscallError(call string, err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return os.NewSyscallError(call, errno)
	}
	return err
}

// interrupt wakes the call that waits, without a result. If the loop receives for
// it, the loop wakes it in a moment. The caller holds the mu of s, the socket.
func (h *direction) interrupt(s *sock) {
	switch h.state {
	case parked:
		h.finish()
	case parkedAlone:
		h.state = interrupted
		s.alone.setDeadline(h == &s.rd, time.Unix(1, 0))
	}
}

// setDeadline sets a deadline of the file. If it has passed, the call that waits ends.
func (a *alone) setDeadline(read bool, t time.Time) {
	if read {
		_ = a.file.SetReadDeadline(t) // fails if the file is closed, and then no call waits
	} else {
		_ = a.file.SetWriteDeadline(t)
	}
}

// netFile is a file or a connection of package net.
type netFile interface {
	syscall.Conn
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// finish ends a wait. The caller holds the socket's mu.
func (h *direction) finish() {
	h.state = idle
	h.wake <- struct{}{}
}

// becomeReady marks the direction ready and wakes the call that waits. The caller
// holds the mu of s, the socket.
func (h *direction) becomeReady(s *sock) {
	h.ready.Store(true)
	h.interrupt(s)
}

// received records the result of a receive that loop l made for the reader, and
// wakes the reader.
func (s *sock) received(l *loop, n int, errno syscall.Errno) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.rd
	switch {
	case errno == syscall.EAGAIN && !s.closing && !h.expired.Load() && s.alone == nil:
		h.state = parked // spurious event: the reader continues to wait
		return
	case errno == syscall.EAGAIN: // the call ends, or waits again where the socket is watched now
	case errno == syscall.EINTR, errno == syscall.ECANCELED: // the reader tries again
		h.ready.Store(true)
	default:
		sys.RaceWrite(s.in.buf[:n])
		s.afterReceive(n, len(s.in.buf), errno)
		s.in.res, s.in.done = result(n, errno), true
		if l.driving {
			s.in.counted = true
			l.starting.Add(1)
		}
	}
	h.finish()
}

// afterReceive marks the socket ready if a receive after one of n bytes into a
// buffer of room bytes could return data at once. After a short receive a stream
// is empty, and an event reports new data.
func (s *sock) afterReceive(n, room int, errno syscall.Errno) {
	if errno != 0 || n == room || n == 0 || s.moreLikely.Load() {
		s.rd.ready.Store(true)
	}
}
