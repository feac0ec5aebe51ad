// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func bufRingRefused(t *testing.T) {
	r := ctlRing(t, uring.Options{})
	before := ctlMemory(t)
	for _, o := range []uring.BufRingOptions{
		{}, {Entries: 3, BufferSize: 8}, {Entries: -2, BufferSize: 8}, {Entries: 1 << 16, BufferSize: 8},
		{Entries: 4}, {Entries: 4, BufferSize: 8, Memory: make([]byte, 31)}, {Entries: 4, BufferSize: -1}, {Entries: 1 << 15, BufferSize: 1<<31 - 1},
		{Buffers: [][]byte{}}, {Buffers: make([][]byte, 2)}, {Buffers: [][]byte{{1}, {2}, {3}}},
		{Buffers: [][]byte{{1}}, Entries: 1}, {Buffers: [][]byte{{1}}, BufferSize: 1}, {Buffers: [][]byte{{1}}, Memory: []byte{1}},
	} {
		if _, err := r.NewBufRing(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	o := uring.BufRingOptions{Group: 5, Entries: 4, BufferSize: 1 << 20}
	ctlBufRing(t, r, o)
	for _, o.KernelMemory = range []bool{false, ctlHasKernel(t, "6.4")} {
		for range 5 {
			_, err := r.NewBufRing(o)
			ctlErrno(t, "a group that exists", err, syscall.EEXIST)
		}
	}
	if grown := ctlMemory(t) - before; grown > 14<<20 {
		t.Errorf("%d bytes are left mapped by buffer rings that were refused", grown)
	}
	if ctlHasKernel(t, "6.5") {
		only := ctlRing(t, uring.Options{Entries: 4, RegisteredFDOnly: true})
		o = uring.BufRingOptions{Entries: 4, BufferSize: 32, KernelMemory: true}
		if _, err := only.NewBufRing(o); err == nil {
			t.Error("memory of the kernel was mapped without a descriptor")
		}
		o.KernelMemory = false
		bufRingMessages(t, only, ctlBufRing(t, only, o), 50)
	}
}

func kernelUnregisterPBufRing(t *testing.T) {
	ringtest.NeedKernel(t, "PBUF_RING", "5.19")
	for _, kind := range bufRingKinds {
		t.Run(kind.name, func(t *testing.T) {
			ringtest.NeedKernel(t, "PBUF_RING", kind.since)
			ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
				rd, wr := ctlPackets(t)
				ctlWrite(t, wr, []byte("waiting"))
				o := kind.of(uring.BufRingOptions{Group: 4, Entries: 8, BufferSize: 64})
				for range 3 { // each Close frees the group id
					b := ctlBufRing(t, r, o)
					ctlOK(t, "close", b.Close())
					ctlOK(t, "close twice", b.Close())
					if c := ctlRecv(t, r, rd, b); c.Errno() != syscall.ENOBUFS {
						t.Fatalf("receive into a group that is gone: %+v (%v), want ENOBUFS", c, c.Err())
					}
				}
				b := ctlBufRing(t, r, o)
				if data, _ := b.Take(ctlRecv(t, r, rd, b)); string(data) != "waiting" {
					t.Fatalf("%q", data)
				}
				ctlOK(t, "close the ring", r.Close())
				ctlOK(t, "close after the ring", b.Close())
				_, err := b.Available()
				ctlErrno(t, "status after the ring", err, syscall.EBADF)
			})
		})
	}
	t.Run("another thread", bufRingCloseElsewhere)
}

// bufRingCloseElsewhere checks that the buffers stay usable after Close was refused,
// because the kernel still writes to them.
func bufRingCloseElsewhere(t *testing.T) {
	ringtest.NeedKernel(t, "SINGLE_ISSUER", "6.0")
	r := ctlRing(t, uring.Options{SingleIssuer: true})
	b := ctlBufRing(t, r, uring.BufRingOptions{Entries: 4, BufferSize: 32})
	ctlElsewhere(func() { ctlErrno(t, "close on another thread", b.Close(), syscall.EEXIST) })
	bufRingMessages(t, r, b, 20)
	ctlOK(t, "close", b.Close())
	b = ctlBufRing(t, r, uring.BufRingOptions{Entries: 4, BufferSize: 32})
	ctlElsewhere(func() { ctlOK(t, "close the ring on another thread", r.Close()) })
	ctlOK(t, "close after the ring", b.Close())
}
