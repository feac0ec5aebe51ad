// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// ErrInFlight is returned by [Ring.Close] when the kernel may still use memory of
// operations: it must stay reachable.
var ErrInFlight = errors.New("uring: the ring is closed, and the kernel may still use the memory of operations that were in flight: keep it reachable")

// How long Close waits: cancelSpan for completions of what was cancelled, then up to
// closeSpan until the kernel has released everything.
const (
	cancelSpan = 100 * time.Millisecond
	closeSpan  = 5 * time.Second
)

// Close ends the operations in flight and frees the ring and its buffer rings. It
// cancels the operations, and reaps and drops their completions. A descriptor that an
// operation has created meanwhile, such as an accepted connection, is lost; if that
// matters, cancel and reap before Close. When Close returns nil, the kernel is done
// with all memory.
//
// Close waits up to five seconds for operations that cannot be cancelled, such as a
// read that a disk has begun. After that it closes the ring all the same and returns
// [ErrInFlight]. It does the same where it may not cancel: on another thread than the
// issuing one of a ring with SingleIssuer, or with [Options.Restrict]. The memory of
// the operations must then stay reachable, and the buffers of buffer rings are never
// freed.
//
// Close must not be called concurrently with another method of the ring. After Close,
// SQE returns nil, Reap returns 0, and methods that enter the kernel return EBADF.
// Further calls of Close return nil. See [Ring.CloseNow] for a close that does not
// wait.
//
// A ring with RegisteredFDOnly, or after [Ring.RegisterRingFD], must be closed on the
// thread to which its index belongs. On another thread Close frees what it can and
// returns an error: the kernel keeps its part of the ring until the owning thread exits
// or (6.3) calls Close too.
func (r *Ring) Close() error {
	if r.enterFD < 0 || r.sq.head == nil || r.endAll(cancelSpan) {
		return r.close(func() bool { return true })
	}
	released, err := r.watchRelease()
	if err != nil {
		ended := r.endAll(closeSpan)
		released = func() bool { return ended }
	}
	return r.close(released)
}

// CloseNow closes the ring without cancelling operations or waiting for them: the
// kernel ends the operations in flight some time later. It is for rings whose
// operations use no memory, such as polls, or memory that stays reachable. The buffers
// of buffer rings are never freed if an operation may be in flight. See [Ring.Close].
func (r *Ring) CloseNow() error {
	idle := r.enterFD < 0 || r.sq.head == nil || r.idle()
	err := r.close(func() bool { return idle })
	if errors.Is(err, ErrInFlight) {
		return nil // as announced
	}
	return err
}

// byFD has the open rings, by descriptor, so that a message to one of them can be noted.
var byFD = struct {
	sync.RWMutex
	rings map[int]*Ring
}{rings: map[int]*Ring{}}

// list adds the ring to byFD, or removes it.
func (r *Ring) list(open bool) {
	byFD.Lock()
	defer byFD.Unlock()
	if open {
		byFD.rings[r.fd.Int()] = r
	} else {
		delete(byFD.rings, r.fd.Int())
	}
}

// noteMessage notes that completions without an entry may arrive in the ring of a descriptor.
func noteMessage(target FD) {
	byFD.RLock()
	defer byFD.RUnlock()
	if r := byFD.rings[int(target.n)]; r != nil {
		r.messaged.Store(true)
	}
}

// taken returns how many entries the kernel has taken.
func (r *Ring) taken() uint32 {
	if r.setup&SetupSQPoll != 0 {
		return r.sq.next - r.sq.base // its thread may take entries at any time
	}
	return r.sq.head.Load() - r.sq.base
}

// inFlight returns how many entries the kernel has taken that have not completed for the
// last time. It is too high where entries complete without a completion (SQESkipSuccess),
// and wrong where completions have no entry.
func (r *Ring) inFlight() uint32 { return r.taken() - r.cq.ended }

// entriesOnly reports whether every completion of the ring has an entry. The completions of
// tags and of messages have none. It does not know of messages by other processes.
func (r *Ring) entriesOnly() bool { return !r.tagged && !r.messaged.Load() }

// idle reports whether the kernel certainly has no entry.
func (r *Ring) idle() bool {
	return r.inFlight() == 0 && (r.taken() == 0 || r.entriesOnly())
}

// endAll cancels the operations in flight and reaps, until none is left or the time is
// over. It reports whether certainly nothing is left.
func (r *Ring) endAll(span time.Duration) bool {
	until := time.Now().Add(span)
	var dropped [64]CQE
	for pause := time.Millisecond; ; pause = min(2*pause, 16*time.Millisecond) {
		for r.Reap(dropped[:]) > 0 {
		}
		if r.taken() == 0 && r.idle() {
			return true // nothing was ever submitted
		}
		n, err := r.SyncCancel(CancelOptions{Any: true, All: true}, pause)
		if (err != nil || n == 0) && (r.inFlight() == 0 || !r.entriesOnly()) {
			return r.idle()
		}
		if err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, sys.ETIME) && !errors.Is(err, syscall.EALREADY) {
			return false
		}
		if _, err := r.Wait(WaitOptions{Count: 1, NoSubmit: true, Timeout: pause}); err != nil || time.Now().After(until) {
			return false
		}
	}
}

// watchRelease returns what waits until the kernel has released a ring that is closed,
// which it does after the last operation: then it drops the ring's table of files, in
// which the only writer of a pipe is.
func (r *Ring) watchRelease() (released func() bool, err error) {
	rd, wr, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer wr.Close()
	fds := []int{int(wr.Fd())}
	if n, _ := r.UpdateFiles(0, fds); n != 1 {
		if err := r.RegisterFiles(fds); err != nil {
			return nil, errors.Join(err, rd.Close())
		}
	}
	return func() bool {
		defer rd.Close()
		_ = rd.SetReadDeadline(time.Now().Add(closeSpan))
		_, err := rd.Read(make([]byte, 1))
		return err == io.EOF
	}, nil
}

// kept are buffer rings whose buffers the kernel may still use.
var kept struct {
	sync.Mutex
	rings []*BufRing
}

// close frees the ring. released is asked, after the kernel has been told, whether it is
// done with all memory.
func (r *Ring) close(released func() bool) error {
	var errs []error
	for _, b := range r.bufs {
		_ = b.unregister() // refused ones die with the ring
		errs = append(errs, b.unmap())
	}
	if r.registered >= 0 {
		errs = append(errs, r.UnregisterRingFD())
	}
	if r.fd != nil {
		r.list(false)
		errs = append(errs, r.fd.Close())
		r.fd = nil
	}
	// The kernel holds its own references to the pages of the queues and of the buffer rings.
	// A mapping of the ring's descriptor that was left would keep the ring alive.
	errs = append(errs, unmap(r.mem), unmap(r.extra))
	r.mem, r.extra = nil, nil
	r.enterFD = -1
	r.sq, r.cq = closedQueues()
	switch {
	case !released():
		errs = append(errs, ErrInFlight)
		kept.Lock()
		kept.rings = append(append(kept.rings, r.bufs...), r.retired...)
		kept.Unlock()
	case r.registered >= 0: // the kernel's half lives on
		return errors.Join(errs...)
	default:
		for _, b := range append(r.bufs, r.retired...) {
			errs = append(errs, b.free())
		}
	}
	r.bufs, r.retired = nil, nil
	return errors.Join(errs...)
}
