// SPDX-License-Identifier: MIT

package kernelsim

import (
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/uring"
)

func (b *bench) bufRing(entries, size int) *BufRing {
	b.t.Helper()
	br, err := b.r.NewBufRing(uring.BufRingOptions{Group: 3, Entries: entries, BufferSize: size, Memory: make([]byte, entries*size)})
	if err != nil {
		b.t.Fatal(err)
	}
	return br
}

// TestProvidedBuffers reads a pipe through two buffers, until both are used and
// again when one is back.
func TestProvidedBuffers(t *testing.T) {
	onBench(t, Options{}, RingOptions{}, func(b *bench) {
		br := b.bufRing(2, 4)
		if _, err := b.r.NewBufRing(uring.BufRingOptions{Group: 3, Entries: 1, BufferSize: 1, Memory: make([]byte, 1)}); err != syscall.EEXIST {
			t.Errorf("a group that exists: %v", err)
		}
		pipe := b.k.Pipe()
		read := func(ud uint64) {
			b.sqe(ud, func(e *uring.SQE) { e.ReadMultishot(uring.Fd(pipe), 3) })
			b.submit()
			b.settle()
		}
		take := func(ud, from uint64) {
			t.Helper()
			c := b.got[ud]
			data, done := br.Take(c)
			if !done || !c.Has(uring.CQEMore|uring.CQEBuffer) || len(data) != 4 {
				t.Fatalf("%+v", c)
			}
			for i, x := range data {
				if x != PipeByte(from+uint64(i)) {
					t.Errorf("byte %d of the pipe came as %d", from+uint64(i), x)
				}
			}
		}
		read(1)
		b.k.Feed(pipe, 4)
		b.settle()
		take(1, 0)
		b.k.Feed(pipe, 4)
		b.settle()
		take(1, 4)
		b.k.Feed(pipe, 4)
		b.settle()
		b.want(no(syscall.ENOBUFS))
		before := append([]byte(nil), br.Buffer(0)...)
		br.Recycle(0)
		br.Publish()
		if string(before) == string(br.Buffer(0)) {
			t.Error("the kernel leaves a buffer of its own as it was")
		}
		read(2)
		take(2, 8)
		b.sqe(3, func(e *uring.SQE) { e.ReadMultishot(uring.Fd(pipe), 4) })
		b.submit()
		b.settle()
		b.want(no(syscall.ENOBUFS), 4, no(syscall.EINVAL))
	})
}

func TestBufRingViolations(t *testing.T) {
	for _, c := range []struct {
		want string
		do   func(b *bench, br *BufRing)
	}{
		{"twice", func(b *bench, br *BufRing) {
			br.Recycle(1)
			br.Publish()
		}},
		{"after", func(b *bench, br *BufRing) {
			_ = br.Close()
			br.Recycle(1)
			br.Publish()
		}},
		{"in flight", func(b *bench, br *BufRing) {
			pipe := b.k.Pipe()
			b.sqe(1, func(e *uring.SQE) { e.ReadMultishot(uring.Fd(pipe), 3) })
			b.submit()
			_ = br.Close()
		}},
	} {
		onBench(t, Options{}, RingOptions{}, func(b *bench) {
			c.do(b, b.bufRing(2, 4))
			if v := b.k.Violations(); len(v) != 1 || !strings.Contains(v[0], c.want) {
				t.Errorf("violations %q, want one about %q", v, c.want)
			}
		})
	}
}
