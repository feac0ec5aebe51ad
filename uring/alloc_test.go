// SPDX-License-Identifier: MIT

package uring_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// ctlAllocs fails when a round allocates. A round submits and reaps n completions.
func ctlAllocs(t *testing.T, r *uring.Ring, n int, round func(dst []uring.CQE)) {
	t.Helper()
	dst := make([]uring.CQE, n)
	reap := func() {
		round(dst)
		for got := 0; got < n; {
			if _, err := r.SubmitAndWaitTimeout(1, time.Second); err != nil {
				t.Fatal(err)
			}
			got += r.Reap(dst[got:])
		}
		for _, c := range dst {
			if c.Res < 0 {
				t.Fatalf("completion %+v (%v)", c, c.Err())
			}
		}
	}
	if allocs := ringtest.Allocations(200, reap); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestAllocsNop(t *testing.T) {
	ringtest.AsksNoKernel(t)
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		ctlAllocs(t, r, 2, func([]uring.CQE) {
			r.SQE().Nop()
			r.SQE().Nop()
			if _, err := r.SubmitNoWait(); err != nil {
				t.Fatal(err)
			}
		})
		ctlAllocs(t, r, 1, func([]uring.CQE) { r.SQE().Nop() })
	})
}

func TestAllocsRead(t *testing.T) {
	ringtest.AsksNoKernel(t)
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		fd := uring.Fd(ctlNamed(t, "some content")[0])
		buf := make([]byte, 64)
		ctlAllocs(t, r, 1, func([]uring.CQE) { r.SQE().Read(fd, buf, 0) })
		if string(buf[:4]) != "some" {
			t.Errorf("%q", buf)
		}
		path, err := uring.NewPath(os.DevNull)
		ctlOK(t, "path", err)
		ctlAllocs(t, r, 1, func(dst []uring.CQE) {
			if dst[0].Res > 0 {
				ctlClose(t, int(dst[0].Res)) // of the previous round
			}
			r.SQE().OpenAt(uring.AtCWD, path, os.O_RDONLY, 0)
		})
		runtime.KeepAlive(path)
	})
}

func TestAllocsSendRecv(t *testing.T) {
	ringtest.AsksNoKernel(t)
	ringtest.NeedKernel(t, "PBUF_RING", "5.19")
	for _, inc := range []bool{false, true} {
		ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
			if inc {
				ringtest.NeedKernel(t, "incremental buffer rings", "6.12")
			}
			b := ctlBufRing(t, r, uring.BufRingOptions{Entries: 8, BufferSize: 4 * 26, Incremental: inc})
			rd, wr := ctlTCP(t)
			text := []byte("a message of 26 characters")
			give := func(c uring.CQE) {
				if data, done := b.Take(c); done {
					b.Recycle(c.BufferID())
					b.Publish()
				} else if data != nil && string(data) != string(text) {
					t.Fatalf("%q", data)
				}
			}
			bundles := inc && r.Features()&uring.FeatRecvSendBundle != 0 && ctlHasKernel(t, "6.15")
			ctlAllocs(t, r, 2, func(dst []uring.CQE) {
				give(dst[0])
				give(dst[1])
				r.SQE().Send(uring.Fd(wr), text, 0)
				r.SQE().RecvSelect(uring.Fd(rd), len(text), ctlMsgWaitAll, b.Group())
			})
			if !bundles {
				return
			}
			yield := func(id uint16, _ []byte, done bool) {
				if done {
					b.Recycle(id)
					b.Publish()
				}
			}
			ctlAllocs(t, r, 2, func(dst []uring.CQE) {
				for _, c := range dst {
					b.TakeBundle(c, yield)
				}
				clear(dst)
				r.SQE().Send(uring.Fd(wr), text, 0)
				r.SQE().RecvBundle(uring.Fd(rd), 0, 0, b.Group())
			})
		})
	}
}

func TestAllocsReapBig(t *testing.T) {
	ringtest.NeedKernel(t, "CQE_MIXED", "6.18")
	r := ctlRing(t, uring.Options{CQEMixed: true})
	dst := make([]uring.BigCQE, 4)
	if n := ringtest.Allocations(100, func() {
		r.SQE().NopWith(uring.NopOptions{Big: true})
		r.SQE().Nop()
		if _, err := r.SubmitNoWait(); err != nil {
			t.Fatal(err)
		}
		if n := r.ReapBig(dst); n != 2 {
			t.Fatalf("%d completions", n)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
