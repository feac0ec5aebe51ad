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

	"github.com/ringside-io/ringside/internal/ringtest"
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
var bufRingKinds = []struct {
	name, since string
	kernel      bool
}{{"user memory", "5.19", false}, {"kernel memory", "6.4", true}}

// kernelRegisterPBufRing finds each message in the buffer that its completion
// names.
func kernelRegisterPBufRing(t *testing.T) {
	for _, kind := range bufRingKinds {
		t.Run(kind.name, func(t *testing.T) {
			ringtest.NeedKernel(t, "PBUF_RING", kind.since)
			ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
				b := ctlBufRing(t, r, uring.BufRingOptions{Group: 3, Entries: 4, BufSize: 32, KernelMemory: kind.kernel})
				bufRingMessages(t, r, b, 1000)
			})
			ringtest.NeedKernel(t, "multishot receive", "6.0")
			r := ctlRing(t, uring.Options{CQEntries: 512})
			bufRingWrap(t, r, ctlBufRing(t, r, uring.BufRingOptions{Entries: 64, BufSize: 3, KernelMemory: kind.kernel}))
			bufRingRefill(t, r, uring.BufRingOptions{Group: 9, Entries: 4, BufSize: 32, KernelMemory: kind.kernel})
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

// bufRingIncremental receives pieces of every size into few buffers: each byte
// must be found where the pieces before it end, and a buffer must be given up
// exactly when it is full.
func bufRingIncremental(t *testing.T) {
	ringtest.NeedKernel(t, "incremental buffer rings", "6.12")
	for _, multishot := range []bool{false, true} {
		t.Run(fmt.Sprintf("multishot %v", multishot), func(t *testing.T) {
			ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) { incremental(t, r, multishot) })
		})
	}
}

func incremental(t *testing.T, r *uring.Ring, multishot bool) {
	const size = 64
	b := ctlBufRing(t, r, uring.BufRingOptions{Group: 1, Entries: 4, BufSize: size, Incremental: true})
	rd, wr := ctlTCP(t)
	rnd := rand.New(rand.NewPCG(9, 10))
	armed, given := false, 0
	used := map[uint16]int{}
	next := func() (c uring.CQE, data []byte) {
		t.Helper()
		if !armed {
			if e := ctlNext(t, r); multishot {
				e.RecvMultishot(uring.Fd(rd), 0, b.Group())
			} else {
				e.RecvSelect(uring.Fd(rd), 0, 0, b.Group())
			}
		}
		c = ringtest.Await(t, r, 1)[0]
		armed = c.Has(uring.CQEMore)
		if c.Err() != nil {
			t.Fatalf("receive: %+v (%v)", c, c.Err())
		}
		data, done := b.Take(c)
		id := c.BufferID()
		if used[id] += len(data); done != (used[id] == size) || len(data) > 0 && done == c.Has(uring.CQEBufMore) {
			t.Fatalf("completion %+v: %d bytes of buffer %d used, done %v", c, used[id], id, done)
		}
		if done {
			used[id] = 0
			given++
			b.Recycle(id)
			b.Publish()
		}
		return c, data
	}
	total := 0
	for total < 5000 {
		sent := make([]byte, 1+rnd.IntN(3*size))
		for i := range sent {
			sent[i] = byte(total + i)
		}
		ctlWrite(t, wr, sent)
		for got := 0; got < len(sent); {
			_, data := next()
			if !bytes.Equal(data, sent[got:got+len(data)]) {
				t.Fatalf("after %d bytes: %x, want %x", total+got, data, sent[got:])
			}
			got += len(data)
		}
		total += len(sent)
	}
	if want := total / size; given != want {
		t.Errorf("%d buffers were given up after %d bytes, want %d", given, total, want)
	}
	// The end of the stream uses no buffer up, whatever the flags say: the
	// next connection goes on in the same one.
	ctlShutdown(t, wr)
	if c, data := next(); c.Res != 0 || len(data) != 0 {
		t.Fatalf("end of the stream: %+v, %d bytes", c, len(data))
	}
	armed = false
	rd, wr = ctlTCP(t)
	ctlWrite(t, wr, []byte("next"))
	if _, data := next(); string(data) != "next" {
		t.Fatalf("%q on the next connection", data)
	}
}

// bufRingBundle receives into several buffers at a time.
func bufRingBundle(t *testing.T) {
	ringtest.NeedKernel(t, "receive bundles", "6.10")
	for _, inc := range []bool{false, true} {
		t.Run(fmt.Sprintf("incremental %v", inc), func(t *testing.T) {
			if inc {
				ringtest.NeedKernel(t, "bundles of incremental buffers", "6.15")
			}
			ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) { bundle(t, r, inc) })
		})
	}
}

func bundle(t *testing.T, r *uring.Ring, inc bool) {
	if r.Features()&uring.FeatRecvSendBundle == 0 {
		t.Fatal("no FeatRecvSendBundle")
	}
	const size = 16
	b := ctlBufRing(t, r, uring.BufRingOptions{Group: 2, Entries: 8, BufSize: size, Incremental: inc})
	rd, wr := ctlTCP(t)
	rnd := rand.New(rand.NewPCG(11, 12))
	var held []uint16
	total, several := 0, 0
	for total < 5000 {
		sent := make([]byte, 1+rnd.IntN(4*size))
		for i := range sent {
			sent[i] = byte(total + i)
		}
		ctlWrite(t, wr, sent)
		for got := 0; got < len(sent); {
			c := ringtest.Do(t, r, func(e *uring.SQE) { e.RecvBundle(uring.Fd(rd), 0, 0, b.Group()) })
			if c.Res <= 0 {
				t.Fatalf("receive: %+v (%v)", c, c.Err())
			}
			pieces, left := 0, int(c.Res)
			b.TakeBundle(c, func(id uint16, data []byte, done bool) {
				if !bytes.Equal(data, sent[got:got+len(data)]) {
					t.Fatalf("after %d bytes: %x, want %x", total+got, data, sent[got:])
				}
				got += len(data)
				left -= len(data)
				pieces++
				if done {
					held = append(held, id)
				} else if left != 0 || !inc {
					t.Fatalf("completion %+v: buffer %d is not done, %d bytes follow", c, id, left)
				}
			})
			if left != 0 {
				t.Fatalf("completion %+v: %d bytes are missing", c, left)
			}
			if pieces > 1 {
				several++
			}
			// In another order than they came, some later.
			rnd.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for len(held) > 2 {
				b.Recycle(held[0])
				held = held[1:]
			}
			b.Publish()
		}
		total += len(sent)
	}
	if several == 0 {
		t.Error("no completion ever filled two buffers")
	}
	bundleEnd(t, r, b, rd, wr)
}

// bundleEnd finds that the end of the stream takes no buffer, which the
// completion may name.
func bundleEnd(t *testing.T, r *uring.Ring, b *uring.BufRing, rd, wr int) {
	t.Helper()
	before := ctlAvailable(t, b)
	ctlShutdown(t, wr)
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.RecvBundle(uring.Fd(rd), 0, 0, b.Group()) })
	if c.Res != 0 {
		t.Fatalf("end of the stream: %+v", c)
	}
	b.TakeBundle(c, func(id uint16, data []byte, done bool) {
		t.Errorf("end of the stream: buffer %d, %d bytes, done %v", id, len(data), done)
	})
	if after := ctlAvailable(t, b); after != before {
		t.Errorf("the end of the stream took %d buffers", before-after)
	}
}

func ctlAvailable(t testing.TB, b *uring.BufRing) int {
	t.Helper()
	n, err := b.Available()
	ctlOK(t, "status", err)
	return n
}

func bufRingRefused(t *testing.T) {
	r := ctlRing(t, uring.Options{})
	before := ctlMemory(t)
	for _, o := range []uring.BufRingOptions{
		{}, {Entries: 3, BufSize: 8}, {Entries: -2, BufSize: 8}, {Entries: 1 << 16, BufSize: 8},
		{Entries: 4}, {Entries: 4, BufSize: -1}, {Entries: 1 << 15, BufSize: 1<<31 - 1},
	} {
		if _, err := r.NewBufRing(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	o := uring.BufRingOptions{Group: 5, Entries: 4, BufSize: 1 << 20}
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
		o = uring.BufRingOptions{Entries: 4, BufSize: 32, KernelMemory: true}
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
				o := uring.BufRingOptions{Group: 4, Entries: 8, BufSize: 64, KernelMemory: kind.kernel}
				for range 3 { // the group is free again each time
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

// bufRingCloseElsewhere finds that a refused Close leaves the buffers usable,
// where the kernel still writes to them.
func bufRingCloseElsewhere(t *testing.T) {
	ringtest.NeedKernel(t, "SINGLE_ISSUER", "6.0")
	r := ctlRing(t, uring.Options{SingleIssuer: true})
	b := ctlBufRing(t, r, uring.BufRingOptions{Entries: 4, BufSize: 32})
	ctlElsewhere(func() { ctlErrno(t, "close on another thread", b.Close(), syscall.EEXIST) })
	bufRingMessages(t, r, b, 20)
	ctlOK(t, "close", b.Close())
	b = ctlBufRing(t, r, uring.BufRingOptions{Entries: 4, BufSize: 32})
	ctlElsewhere(func() { ctlOK(t, "close the ring on another thread", r.Close()) })
	ctlOK(t, "close after the ring", b.Close())
}

func kernelRegisterPBufStatus(t *testing.T) {
	ringtest.NeedKernel(t, "PBUF_STATUS", "6.8")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		b := ctlBufRing(t, r, uring.BufRingOptions{Entries: 8, BufSize: 32})
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
		b := ctlBufRing(t, r, uring.BufRingOptions{Entries: 32, BufSize: 3})
		bufRingWrap(t, r, b)
		if n := ctlAvailable(t, b); n != 32 {
			t.Errorf("%d buffers are available, want 32", n)
		}
	})
	r := ctlRing(t, uring.Options{})
	b := ctlBufRing(t, r, uring.BufRingOptions{Entries: 8, BufSize: 32})
	ctlOK(t, "close", b.Close())
	if _, err := b.Available(); !errors.Is(err, syscall.ENOENT) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EINVAL) {
		t.Errorf("status of a closed group: %v", err)
	}
}
