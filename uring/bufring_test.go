// SPDX-License-Identifier: MIT

package uring_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerRegister(uring.OpRegisterPBufRing, row{since: "5.19",
		uses:   []string{"Ring.NewBufRing", "BufRingOptions", "BufRing.Recycle", "BufRing.Publish", "BufRing.Take", "BufRing.TakeBundle"},
		kernel: kernelRegisterPBufRing})
	ledgerRegister(uring.OpUnregisterPBufRing, row{since: "5.19", uses: []string{"BufRing.Close"}, kernel: kernelUnregisterPBufRing})
	ledgerRegister(uring.OpRegisterPBufStatus, row{since: "6.8", uses: []string{"BufRing.Available"}, kernel: kernelRegisterPBufStatus})
}

// ctlBufRing opens a buffer ring.
func ctlBufRing(t testing.TB, r *uring.Ring, o uring.BufRingOptions) *uring.BufRing {
	t.Helper()
	b, err := r.NewBufRing(o)
	if err != nil {
		t.Fatalf("buffer ring %+v: %v", o, err)
	}
	return b
}

// ctlRecv receives once into a buffer of the ring.
func ctlRecv(t testing.TB, r *uring.Ring, fd int, b *uring.BufRing) uring.CQE {
	t.Helper()
	return ringtest.Do(t, r, func(e *uring.SQE) { e.RecvSelect(uring.Fd(fd), 0, 0, b.Group()) })
}

// bufRingKinds are the kinds of memory that a ring of buffers can have.
var bufRingKinds = []bufRingKind{
	{"user memory", "5.19", false, false}, {"memory of the caller", "5.19", false, true}, {"kernel memory", "6.4", true, false}}

type bufRingKind struct {
	name, since string
	kernel, own bool
}

// of makes options those of the kind.
func (k bufRingKind) of(o uring.BufRingOptions) uring.BufRingOptions {
	o.KernelMemory = k.kernel
	if k.own {
		o.Memory = make([]byte, o.Entries*o.BufferSize)
	}
	return o
}

// kernelRegisterPBufRing finds each message in the buffer that its completion
// names.
func kernelRegisterPBufRing(t *testing.T) {
	for _, kind := range bufRingKinds {
		t.Run(kind.name, func(t *testing.T) {
			ringtest.NeedKernel(t, "PBUF_RING", kind.since)
			ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
				b := ctlBufRing(t, r, kind.of(uring.BufRingOptions{Group: 3, Entries: 4, BufferSize: 32}))
				bufRingMessages(t, r, b, 1000)
			})
			ringtest.NeedKernel(t, "multishot receive", "6.0")
			r := ctlRing(t, uring.Options{CQEntries: 512})
			bufRingWrap(t, r, ctlBufRing(t, r, kind.of(uring.BufRingOptions{Entries: 64, BufferSize: 3})))
			bufRingRefill(t, r, kind.of(uring.BufRingOptions{Group: 9, Entries: 4, BufferSize: 32}))
		})
	}
	t.Run("incremental", bufRingIncremental)
	t.Run("bundle", bufRingBundle)
	t.Run("refused", bufRingRefused)
}

// bufRingMessages recycles at random, so that a buffer is put at any place of
// the ring, the one that it shares with the tail too.
func bufRingMessages(t *testing.T, r *uring.Ring, b *uring.BufRing, messages int) {
	t.Helper()
	rd, wr := ctlPackets(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	var held []uint16
	text := make([]byte, 0, 32)
	for i := range messages {
		text = fmt.Appendf(text[:0], "message %d", i)
		ctlWrite(t, wr, text)
		c := ctlRecv(t, r, rd, b)
		if c.Errno() == syscall.ENOBUFS && len(held) == b.Len() {
			rnd.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for _, id := range held[1:] {
				b.Recycle(id)
			}
			held = held[:1]
			b.Publish()
			c = ctlRecv(t, r, rd, b)
		}
		data, done := b.Take(c)
		if !done || !bytes.Equal(data, text) || !bytes.Equal(b.Buffer(c.BufferID())[:len(data)], text) {
			t.Fatalf("%q in %+v (%v), want %q", data, c, c.Err(), text)
		}
		if held = append(held, c.BufferID()); rnd.IntN(2) == 0 {
			b.Recycle(held[0])
			held = held[1:]
			b.Publish()
		}
	}
	for _, id := range held {
		b.Recycle(id)
	}
	b.Publish()
}

// bufRingWrap receives a stream into small buffers until the 16-bit tail has
// wrapped around, with the ring full and empty in turn.
func bufRingWrap(t *testing.T, r *uring.Ring, b *uring.BufRing) {
	t.Helper()
	rd, wr := ctlTCP(t)
	chunk := make([]byte, 3*b.Len()*10)
	dst := make([]uring.CQE, 100)
	total, recycled := 0, 0
	for recycled < 1<<16+100 {
		for i := range chunk {
			chunk[i] = byte((total + i) % 251)
		}
		ctlWrite(t, wr, chunk)
		for got, armed := 0, false; got < len(chunk) || armed; {
			if !armed {
				ctlNext(t, r).RecvMultishot(uring.Fd(rd), ctlMsgDontWait, b.Group())
			}
			_, err := r.SubmitAndWait(1)
			ctlOK(t, "submit", err)
			for _, c := range dst[:r.Reap(dst)] {
				armed = c.Has(uring.CQEMore)
				if c.Errno() == syscall.ENOBUFS || c.Errno() == syscall.EAGAIN {
					continue
				}
				data, done := b.Take(c)
				if !done || !bytes.Equal(data, chunk[got:got+len(data)]) {
					t.Fatalf("after %d bytes: %x in %+v (%v), want %x", total+got, data, c, c.Err(), chunk[got:got+3])
				}
				got += len(data)
				b.Recycle(c.BufferID())
				recycled++
			}
			b.Publish()
		}
		total += len(chunk)
	}
}

// bufRingRefill runs a multishot receive out of buffers. Recycled ones count
// only once they are published.
func bufRingRefill(t *testing.T, r *uring.Ring, o uring.BufRingOptions) {
	t.Helper()
	ringtest.NeedKernel(t, "multishot receive", "6.0")
	b := ctlBufRing(t, r, o)
	rd, wr := ctlPackets(t)
	arm := func() { ctlNext(t, r).RecvMultishot(uring.Fd(rd), 0, o.Group) }
	next := func() (id uint16, text string) {
		t.Helper()
		c := ringtest.Await(t, r, 1)[0]
		data, done := b.Take(c)
		if !done {
			if c.Errno() != syscall.ENOBUFS || c.Has(uring.CQEMore) {
				t.Fatalf("completion %+v (%v), want the ENOBUFS that ends it", c, c.Err())
			}
			return 0, "empty"
		}
		return c.BufferID(), string(data)
	}
	arm()
	for i := range 2 * o.Entries {
		ctlWrite(t, wr, fmt.Append(nil, i))
	}
	seen := 0
	for round := range 3 {
		var held []uint16
		for {
			id, text := next()
			if text == "empty" {
				break
			}
			if text != fmt.Sprint(seen) {
				t.Fatalf("round %d: %q, want %d", round, text, seen)
			}
			seen++
			held = append(held, id)
		}
		if want := []int{o.Entries, 1, o.Entries - 1}[round]; len(held) != want {
			t.Fatalf("round %d: %d messages, want %d", round, len(held), want)
		}
		if round == 0 { // one is recycled, published, and the rest only recycled
			b.Recycle(held[0])
			b.Publish()
			for _, id := range held[1:] {
				b.Recycle(id)
			}
		} else {
			b.Publish()
		}
		arm()
	}
	if seen != 2*o.Entries {
		t.Fatalf("%d messages of %d", seen, 2*o.Entries)
	}
	ringtest.Await(t, r, 1) // ENOBUFS again
}

func ctlAvailable(t testing.TB, b *uring.BufRing) int {
	t.Helper()
	n, err := b.Available()
	ctlOK(t, "status", err)
	return n
}

func kernelRegisterPBufStatus(t *testing.T) {
	ringtest.NeedKernel(t, "PBUF_STATUS", "6.8")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		b := ctlBufRing(t, r, uring.BufRingOptions{Entries: 8, BufferSize: 32})
		rd, wr := ctlPackets(t)
		want := func(n int) {
			t.Helper()
			if got := ctlAvailable(t, b); got != n {
				t.Fatalf("%d buffers are available, want %d", got, n)
			}
		}
		for range 3 {
			want(8)
			for n := range 8 {
				ctlWrite(t, wr, []byte{1})
				c := ctlRecv(t, r, rd, b)
				if _, done := b.Take(c); !done {
					t.Fatalf("completion %+v (%v)", c, c.Err())
				}
				want(7 - n)
				b.Recycle(c.BufferID())
			}
			want(0)
			b.Publish()
		}
	})
	t.Run("wrap", func(t *testing.T) {
		r := ctlRing(t, uring.Options{CQEntries: 512})
		b := ctlBufRing(t, r, uring.BufRingOptions{Entries: 32, BufferSize: 3})
		bufRingWrap(t, r, b)
		if n := ctlAvailable(t, b); n != 32 {
			t.Errorf("%d buffers are available, want 32", n)
		}
	})
	r := ctlRing(t, uring.Options{})
	b := ctlBufRing(t, r, uring.BufRingOptions{Entries: 8, BufferSize: 32})
	ctlOK(t, "close", b.Close())
	if _, err := b.Available(); !errors.Is(err, syscall.ENOENT) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EINVAL) {
		t.Errorf("status of a closed group: %v", err)
	}
}
