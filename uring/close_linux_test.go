// SPDX-License-Identifier: MIT

package uring_test

import (
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// closeWith opens a ring, lets start submit an operation that stays in flight, closes the
// ring, and checks that the operation has ended: wake then finds no waiter.
func closeWith(t *testing.T, o uring.Options, start func(r *uring.Ring) (wake func())) {
	t.Helper()
	runtime.LockOSThread() // the ring may belong to this thread
	defer runtime.UnlockOSThread()
	r, err := uring.Open(o)
	ctlOK(t, "open", err)
	wake := start(r)
	_, err = r.Submit()
	ctlOK(t, "submit", err)
	begin := time.Now()
	ctlOK(t, "close", r.Close())
	wake()
	ctlOK(t, "close again", r.Close())
	if d := time.Since(begin); d > ringtest.Patience/2 {
		t.Errorf("closing took %v", d)
	}
	if r.SQE() != nil {
		t.Error("a closed ring hands out an entry")
	}
}

// TestCloseEndsWhatIsInFlight closes rings with operations of many kinds in flight: after
// Close returns, the kernel must not touch their memory.
// Promise: uring/close-returns-nil
func TestCloseEndsWhatIsInFlight(t *testing.T) {
	ringtest.NeedKernel(t, "SYNC_CANCEL", "6.0")
	for _, f := range ringtest.Flavours {
		t.Run(f.Name, func(t *testing.T) {
			ringtest.NeedKernel(t, "ring flavour "+f.Name, f.Since)
			untouched := func(p []byte, wr int) func() {
				return func() {
					ctlWrite(t, wr, []byte("late"))
					if string(p) != "mine" {
						t.Errorf("the buffer holds %q after Close", p)
					}
				}
			}
			t.Run("read", func(t *testing.T) {
				rd, wr := ctlPipe(t)
				p := []byte("mine")
				closeWith(t, f.Opts, func(r *uring.Ring) func() {
					ctlNext(t, r).Read(uring.Fd(rd), p, 0)
					return untouched(p, wr)
				})
			})
			t.Run("read by a worker", func(t *testing.T) {
				rd, wr := ctlPipe(t)
				p := []byte("mine")
				closeWith(t, f.Opts, func(r *uring.Ring) func() {
					ctlNext(t, r).Read(uring.Fd(rd), p, 0).SetFlags(uring.SQEAsync)
					return untouched(p, wr)
				})
			})
			t.Run("without a completion", func(t *testing.T) {
				rd, wr := ctlPipe(t)
				p := []byte("mine")
				closeWith(t, f.Opts, func(r *uring.Ring) func() {
					ctlNext(t, r).Nop().SetFlags(uring.SQESkipSuccess)
					if r.SQSpace() == 0 {
						_, err := r.Submit()
						ctlOK(t, "submit", err)
					}
					ctlNext(t, r).Read(uring.Fd(rd), p, 0).SetFlags(uring.SQESkipSuccess)
					return untouched(p, wr)
				})
			})
			t.Run("completions that were not reaped", func(t *testing.T) {
				closeWith(t, f.Opts, func(r *uring.Ring) func() {
					for range r.SQEntries() {
						ctlNext(t, r).Nop()
					}
					return func() {}
				})
			})
			t.Run("timeout", func(t *testing.T) {
				ts := uring.NewTimespec(time.Hour)
				closeWith(t, f.Opts, func(r *uring.Ring) func() {
					ctlNext(t, r).Timeout(&ts, 0, 0)
					return func() {}
				})
			})
			t.Run("stream into provided buffers", func(t *testing.T) {
				a, b := ctlTCP(t)
				closeWith(t, f.Opts, func(r *uring.Ring) func() {
					bufs, err := r.NewBufRing(uring.BufRingOptions{Group: 70, Entries: 4, BufferSize: 64})
					ctlOK(t, "buffers", err)
					ctlNext(t, r).RecvMultishot(uring.Fd(a), 0, 70)
					return func() {
						ctlWrite(t, b, []byte("late"))
						ctlOK(t, "close the buffers after the ring", bufs.Close())
					}
				})
			})
		})
	}
}

// TestCloseOfARestrictedRing closes rings whose restrictions forbid to cancel operations and to
// list them: Close reports that memory is in use, and keeps its own mappings.
// Promise: uring/close-returns-nil
func TestCloseOfARestrictedRing(t *testing.T) {
	ringtest.NeedKernel(t, "SINGLE_ISSUER", "6.0")
	t.Run("restricted", func(t *testing.T) {
		rd, _ := ctlPipe(t)
		p := make([]byte, 4)
		r, err := uring.Open(uring.Options{Restrict: &uring.Restrictions{Ops: []uring.Op{uring.OpRead, uring.OpNop}}})
		ctlOK(t, "open", err)
		ctlNext(t, r).Nop()
		ringtest.Await(t, r, 1)
		ctlNext(t, r).Read(uring.Fd(rd), p, 0)
		_, err = r.Submit()
		ctlOK(t, "submit", err)
		if err := r.Close(); !errors.Is(err, uring.ErrInFlight) {
			t.Errorf("close: %v", err)
		}
		ctlOK(t, "close again", r.Close())
		runtime.KeepAlive(p)
	})
	t.Run("another thread", func(t *testing.T) {
		a, b := ctlTCP(t)
		runtime.LockOSThread() // the ring belongs to the thread that opens it
		defer runtime.UnlockOSThread()
		r, err := uring.Open(uring.Options{SingleIssuer: true})
		ctlOK(t, "open", err)
		bufs, err := r.NewBufRing(uring.BufRingOptions{Group: 71, Entries: 4, BufferSize: 64})
		ctlOK(t, "buffers", err)
		ctlNext(t, r).RecvMultishot(uring.Fd(a), 0, 71)
		_, err = r.Submit()
		ctlOK(t, "submit", err)
		buf := bufs.Buffer(0)
		ctlElsewhere(func() {
			if err := r.Close(); !errors.Is(err, uring.ErrInFlight) {
				t.Errorf("close: %v", err)
			}
		})
		ctlWrite(t, b, []byte("late"))
		buf[0]++ // this read would fault if the memory were unmapped
	})
	t.Run("as many messages as operations", func(t *testing.T) {
		rd, _ := ctlPipe(t)
		p := make([]byte, 4)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		r, err := uring.Open(uring.Options{SingleIssuer: true})
		ctlOK(t, "open", err)
		ctlNext(t, r).Read(uring.Fd(rd), p, 0)
		ctlNext(t, r).MsgRing(uring.Fd(r.FD()), 1, 2)
		ringtest.Await(t, r, 2)
		ctlElsewhere(func() {
			if err := r.Close(); !errors.Is(err, uring.ErrInFlight) {
				t.Errorf("close: %v", err)
			}
		})
		runtime.KeepAlive(p)
	})
	t.Run("nothing in flight", func(t *testing.T) {
		r, err := uring.Open(uring.Options{SingleIssuer: true})
		ctlOK(t, "open", err)
		ctlElsewhere(func() { ctlOK(t, "close", r.Close()) })
	})
}

// TestCloseNow closes rings without waiting and keeps the buffers that the kernel may still
// use.
// Promise: uring/close-returns-nil
func TestCloseNow(t *testing.T) {
	ringtest.NeedKernel(t, "multishot receive", "6.0")
	a, b := ctlTCP(t)
	r, err := uring.Open(uring.Options{})
	ctlOK(t, "open", err)
	bufs, err := r.NewBufRing(uring.BufRingOptions{Group: 72, Entries: 4, BufferSize: 64})
	ctlOK(t, "buffers", err)
	ctlNext(t, r).RecvMultishot(uring.Fd(a), 0, 72)
	_, err = r.Submit()
	ctlOK(t, "submit", err)
	buf := bufs.Buffer(0)
	ctlOK(t, "close", r.CloseNow())
	ctlOK(t, "close again", r.CloseNow())
	ctlWrite(t, b, []byte("late"))
	buf[0]++
}

// TestCloseNowReleasesTheRing closes rings with a buffer ring and a receive in flight. The kernel
// releases the ring and its table of files, in which the only writer of a pipe is. A ring that
// it kept would take the data of the socket.
// Promise: uring/closenow-kernel-ends
func TestCloseNowReleasesTheRing(t *testing.T) {
	ringtest.NeedKernel(t, "PBUF_RING", "5.19")
	for _, kind := range bufRingKinds {
		t.Run(kind.name, func(t *testing.T) {
			ringtest.NeedKernel(t, "PBUF_RING", kind.since)
			a, _ := ctlTCP(t)
			rd, wr, err := os.Pipe()
			ctlOK(t, "pipe", err)
			defer rd.Close()
			r, err := uring.Open(uring.Options{})
			ctlOK(t, "open", err)
			_, err = r.NewBufRing(kind.of(uring.BufRingOptions{Group: 75, Entries: 4, BufferSize: 64}))
			ctlOK(t, "buffers", err)
			ctlOK(t, "register", r.RegisterFiles([]int{int(wr.Fd())}))
			ctlOK(t, "close the writer", wr.Close())
			p := make([]byte, 4)
			ctlNext(t, r).Recv(uring.Fd(a), p, 0)
			_, err = r.Submit()
			ctlOK(t, "submit", err)
			ctlOK(t, "close", r.CloseNow())
			ctlOK(t, "deadline", rd.SetReadDeadline(time.Now().Add(ringtest.Patience)))
			if _, err := rd.Read(p); err != io.EOF {
				t.Errorf("the kernel has not released the ring: %v", err)
			}
		})
	}
}

// TestBufRingCloseBesideMessages closes a buffer ring as [TestBufRingCloseInFlight] does, after
// as many completions without an entry as there are operations in flight.
// Promise: uring/close-returns-nil
func TestBufRingCloseBesideMessages(t *testing.T) {
	ringtest.NeedKernel(t, "multishot receive", "6.0")
	for _, from := range []string{"message", "tag"} {
		t.Run(from, func(t *testing.T) {
			r := ctlRing(t, uring.Options{})
			a, _ := ctlTCP(t)
			bufs := ctlBufRing(t, r, uring.BufRingOptions{Group: 74, Entries: 4, BufferSize: unix.Getpagesize()})
			ctlNext(t, r).RecvMultishot(uring.Fd(a), 0, 74)
			if from == "message" {
				ctlNext(t, r).MsgRing(uring.Fd(r.FD()), 1, 2)
				ringtest.Await(t, r, 2)
			} else {
				_, err := r.Submit()
				ctlOK(t, "submit", err)
				ctlOK(t, "register", r.RegisterFiles([]int{a}, 1))
				_, err = r.UpdateFiles(0, []int{-1}, 0)
				ctlOK(t, "update", err)
				ringtest.Await(t, r, 1)
			}
			buf := bufs.Buffer(0)
			ctlOK(t, "close", bufs.Close())
			buf[0]++ // this would fault if the memory were unmapped
			begin := time.Now()
			ctlOK(t, "close the ring", r.Close())
			if d := time.Since(begin); d > ringtest.Patience/2 {
				t.Errorf("closing took %v", d)
			}
		})
	}
}

// TestBufRingCloseInFlight closes a buffer ring while a stream may pick a buffer from it:
// the buffers stay until the ring is closed.
// Promise: uring/close-returns-nil
func TestBufRingCloseInFlight(t *testing.T) {
	ringtest.NeedKernel(t, "multishot receive", "6.0")
	r := ctlRing(t, uring.Options{})
	a, _ := ctlTCP(t)
	bufs := ctlBufRing(t, r, uring.BufRingOptions{Group: 73, Entries: 4, BufferSize: unix.Getpagesize()})
	ctlNext(t, r).RecvMultishot(uring.Fd(a), 0, 73)
	_, err := r.Submit()
	ctlOK(t, "submit", err)
	buf := bufs.Buffer(0)
	ctlOK(t, "close", bufs.Close())
	buf[0]++
	ctlNext(t, r).CancelWith(uring.CancelOptions{Any: true, All: true})
	for range 2 {
		if c := ringtest.Await(t, r, 1)[0]; c.UserData == 0 && c.Res < 0 && c.Errno() != syscall.ECANCELED && c.Errno() != syscall.ENOBUFS {
			t.Errorf("%+v", c)
		}
	}
}

// TestBufRingCloseKeepsMemory closes a buffer ring in memory of Go's heap while a stream may pick
// a buffer from it: the memory stays reachable until the ring is closed.
// Promise: uring/close-returns-nil
func TestBufRingCloseKeepsMemory(t *testing.T) {
	ringtest.NeedKernel(t, "multishot receive", "6.0")
	for _, kind := range bufRingKinds {
		if !kind.own && !kind.any {
			continue
		}
		t.Run(kind.name, func(t *testing.T) {
			r := ctlRing(t, uring.Options{})
			a, _ := ctlTCP(t)
			bufs := ctlBufRing(t, r, kind.of(uring.BufRingOptions{Group: 76, Entries: 1, BufferSize: 1 << 16}))
			ctlNext(t, r).RecvMultishot(uring.Fd(a), 0, 76)
			_, err := r.Submit()
			ctlOK(t, "submit", err)
			memory := weak.Make(&bufs.Buffer(0)[0])
			ctlOK(t, "close", bufs.Close())
			runtime.GC()
			if memory.Value() == nil {
				t.Error("the memory was collected while an operation was in flight")
			}
			ctlOK(t, "close the ring", r.Close())
			runtime.GC()
			if memory.Value() != nil {
				t.Error("the ring is closed and keeps the memory")
			}
		})
	}
}
