// SPDX-License-Identifier: MIT

package uring_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// bufRingIncremental receives pieces of every size into few buffers. Each piece must begin
// where the piece before it ended, and a buffer must be done exactly when it is full.
func bufRingIncremental(t *testing.T) {
	if !ctlHasKernel(t, "6.12") {
		_, err := ctlRing(t, uring.Options{}).NewBufRing(uring.BufRingOptions{Entries: 4, BufferSize: 32, Incremental: true})
		ctlErrno(t, "an incremental ring of an older kernel", err, syscall.EINVAL)
	}
	ringtest.NeedKernel(t, "incremental buffer rings", "6.12")
	for _, multishot := range []bool{false, true} {
		t.Run(fmt.Sprintf("multishot %v", multishot), func(t *testing.T) {
			ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) { incremental(t, r, multishot) })
		})
	}
}

func incremental(t *testing.T, r *uring.Ring, multishot bool) {
	const size = 64
	b := ctlBufRing(t, r, uring.BufRingOptions{Group: 1, Entries: 4, BufferSize: size, Incremental: true})
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
		t.Errorf("%d buffers are done after %d bytes, want %d", given, total, want)
	}
	// The end of the stream consumes no buffer, whatever the flags are: the next connection
	// continues in the same buffer.
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

// bufRingBundle receives into several buffers with one completion.
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
	b := ctlBufRing(t, r, uring.BufRingOptions{Group: 2, Entries: 8, BufferSize: size, Incremental: inc})
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
			// The buffers are recycled out of order, some of them later.
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

// bundleEnd checks that the end of the stream consumes no buffer, although its completion
// may name one.
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
		t.Errorf("the end of the stream consumed %d buffers, want 0", before-after)
	}
}
