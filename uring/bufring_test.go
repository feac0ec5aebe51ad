// SPDX-License-Identifier: MIT

package uring_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

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

// bufRingKinds are the kinds of memory that a buffer ring can use.
var bufRingKinds = []bufRingKind{
	{"user memory", "5.19", false, false, false}, {"memory of the caller", "5.19", false, true, false},
	{"kernel memory", "6.4", true, false, false}, {"buffers anywhere", "5.19", false, false, true}}

type bufRingKind struct {
	name, since      string
	kernel, own, any bool
}

// of sets the options for this kind.
func (k bufRingKind) of(o uring.BufRingOptions) uring.BufRingOptions {
	o.KernelMemory = k.kernel
	if k.own {
		o.Memory = make([]byte, o.Entries*o.BufferSize)
	}
	if k.any {
		for i := range o.Entries {
			from := i % 7
			o.Buffers = append(o.Buffers, make([]byte, from+o.BufferSize)[from:])
		}
		o.Entries, o.BufferSize = 0, 0
	}
	return o
}

// bufRingAnyLength receives a stream into buffers of different lengths: one at a time, in
// pieces, and several at a time.
func bufRingAnyLength(t *testing.T) {
	lengths := []int{1, 40, 3, 4096, 2, 17, 5, 64}
	for _, kind := range []struct {
		name, since         string
		incremental, bundle bool
	}{{"whole", "6.0", false, false}, {"incremental", "6.12", true, false}, {"bundle", "6.10", false, true}} {
		t.Run(kind.name, func(t *testing.T) {
			ringtest.NeedKernel(t, kind.name+" buffers", kind.since)
			ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
				var bufs [][]byte
				for i, n := range lengths {
					bufs = append(bufs, make([]byte, i+n)[i:])
				}
				b := ctlBufRing(t, r, uring.BufRingOptions{Group: 77, Buffers: bufs, Incremental: kind.incremental})
				if b.Len() != len(lengths) || len(b.Buffer(3)) != 4096 {
					t.Fatalf("%d buffers, number 3 with %d bytes", b.Len(), len(b.Buffer(3)))
				}
				rd, wr := ctlTCP(t)
				rnd := rand.New(rand.NewPCG(9, 10))
				var sent, got []byte
				flags := uring.NetFlags(0)
				if kind.bundle {
					flags = uring.NetBundle
				}
				for len(sent) < 20_000 {
					p := make([]byte, 1+rnd.IntN(300))
					for i := range p {
						p[i] = byte(rnd.Uint32())
					}
					ctlWrite(t, wr, p)
					for sent = append(sent, p...); len(got) < len(sent); {
						c := ringtest.Do(t, r, func(e *uring.SQE) {
							e.RecvSelect(uring.Fd(rd), 0, 0, 77).SetNetFlags(flags)
						})
						if c.Res <= 0 {
							t.Fatalf("after %d of %d bytes: %+v (%v)", len(got), len(sent), c, c.Err())
						}
						take := func(id uint16, data []byte, done bool) {
							if len(data) > lengths[id] {
								t.Fatalf("%d bytes of buffer %d, which has %d", len(data), id, lengths[id])
							}
							if got = append(got, data...); done {
								b.Recycle(id)
							}
						}
						if kind.bundle {
							b.TakeBundle(c, take)
						} else {
							data, done := b.Take(c)
							take(c.BufferID(), data, done)
						}
						b.Publish()
					}
				}
				if !bytes.Equal(got, sent) {
					t.Error("the received bytes differ from those sent")
				}
			})
		})
	}
}

// bufRingOnOwnMemory opens buffer rings in the kernel's memory on a ring whose queues are
// in the process's memory.
func bufRingOnOwnMemory(t *testing.T) {
	ringtest.NeedKernel(t, "buffer rings of the kernel beside NO_MMAP", "6.18")
	for _, o := range []uring.Options{{Entries: 8, NoMmap: true}, {Entries: 8, NoMmap: true, DeferTaskrun: true}} {
		func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			r := ctlRing(t, o)
			b := ctlBufRing(t, r, uring.BufRingOptions{Group: 3, Entries: 4, BufferSize: 32, KernelMemory: true})
			bufRingMessages(t, r, b, 100)
			ctlOK(t, "close", b.Close())
		}()
	}
}

// kernelRegisterPBufRing checks that each message is in the buffer that its completion
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
			b := ctlBufRing(t, r, kind.of(uring.BufRingOptions{Entries: 64, BufferSize: 3}))
			bufRingWrap(t, r, b)
			bufRingEmpty(t, r, ctlBufRing(t, r, kind.of(uring.BufRingOptions{Group: 5, Entries: 4, BufferSize: 32})))
			bufRingRefill(t, r, kind.of(uring.BufRingOptions{Group: 9, Entries: 4, BufferSize: 32}))
		})
	}
	t.Run("incremental", bufRingIncremental)
	t.Run("bundle", bufRingBundle)
	t.Run("any length", bufRingAnyLength)
	t.Run("kernel memory beside NO_MMAP", bufRingOnOwnMemory)
	t.Run("refused", bufRingRefused)
}

// bufRingMessages recycles in random order, so that each buffer is put at each place of the
// ring, including the place that holds the tail.
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

// bufRingWrap receives a stream into small buffers until the 16-bit tail has wrapped
// around, with the ring full and empty in turn.
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
		deadline := time.Now().Add(ringtest.Patience)
		for got, armed := 0, false; got < len(chunk) || armed; {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d bytes after %v", total+got, total+len(chunk), ringtest.Patience)
			}
			if !armed {
				ctlNext(t, r).RecvMultishot(uring.Fd(rd), ctlMsgDontWait, b.Group())
			}
			_, err := r.SubmitAndWaitTimeout(1, time.Second)
			ctlOK(t, "submit", err)
			for _, c := range dst[:r.Reap(dst)] {
				armed = c.Has(uring.CQEMore)
				data, done := b.Take(c)
				if c.Has(uring.CQEBuffer) {
					// On Linux 6.1 an EAGAIN uses a buffer, too.
					b.Recycle(c.BufferID())
					recycled++
				}
				if c.Errno() == syscall.ENOBUFS || c.Errno() == syscall.EAGAIN {
					continue
				}
				if !done || !bytes.Equal(data, chunk[got:got+len(data)]) {
					t.Fatalf("after %d bytes: %x in %+v (%v), want %x", total+got, data, c, c.Err(), chunk[got:got+3])
				}
				got += len(data)
			}
			b.Publish()
		}
		total += len(chunk)
	}
}

// bufRingEmpty receives from an empty socket without waiting, more often than there are
// buffers. The caller gets each buffer back, because the completion names it or because
// the kernel did not use it.
func bufRingEmpty(t *testing.T, r *uring.Ring, b *uring.BufRing) {
	t.Helper()
	rd, wr := ctlPackets(t)
	for range 2 * b.Len() {
		ctlNext(t, r).RecvMultishot(uring.Fd(rd), ctlMsgDontWait, b.Group())
		c := ringtest.Await(t, r, 1)[0]
		if c.Errno() != syscall.EAGAIN || c.Has(uring.CQEMore) {
			t.Fatalf("a receive from an empty socket: %+v (%v), want EAGAIN", c, c.Err())
		}
		if c.Has(uring.CQEBuffer) {
			b.Recycle(c.BufferID())
			b.Publish()
		}
	}
	ctlWrite(t, wr, []byte("text"))
	c := ctlRecv(t, r, rd, b)
	if data, done := b.Take(c); !done || string(data) != "text" {
		t.Fatalf("%q in %+v (%v), want %q", data, c, c.Err(), "text")
	}
	b.Recycle(c.BufferID())
	b.Publish()
}

// bufRingRefill lets a multishot receive run out of buffers. Recycled buffers count only
// after they are published.
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
	for i := range 2 * b.Len() {
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
		if want := []int{b.Len(), 1, b.Len() - 1}[round]; len(held) != want {
			t.Fatalf("round %d: %d messages, want %d", round, len(held), want)
		}
		if round == 0 { // one is recycled and published, the others are only recycled
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
	if seen != 2*b.Len() {
		t.Fatalf("got %d messages, want %d", seen, 2*b.Len())
	}
	ringtest.Await(t, r, 1) // ENOBUFS ends it again
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
