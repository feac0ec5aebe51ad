// SPDX-License-Identifier: MIT

package uring

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

func durationOf(ns int64) time.Duration { return time.Duration(ns) }

// FuzzReap lets Reap and ReapBig decode any memory as a CQ. They must reach its end, return
// no more completions than it holds, and return no filler entry of a mixed CQ.
// Promise: uring/bytes-shared-memory
// Promise: uring/completion-lost-seen
func FuzzReap(f *testing.F) {
	f.Add([]byte{}, uint32(0), uint8(3), uint8(0), uint8(2), true)
	f.Add(bytes.Repeat([]byte{0xff}, 256), uint32(1<<32-2), uint8(9), uint8(2), uint8(1), false)
	skip, big := make([]byte, 128), make([]byte, 128)
	for i := 12; i < 128; i += 16 {
		binary.NativeEndian.PutUint32(skip[i:], abi.IORING_CQE_F_SKIP)
		binary.NativeEndian.PutUint32(big[i:], abi.IORING_CQE_F_32)
	}
	f.Add(skip, uint32(7), uint8(8), uint8(2), uint8(3), true)
	f.Add(big, uint32(7), uint8(7), uint8(2), uint8(1), true)
	f.Fuzz(func(t *testing.T, mem []byte, head uint32, n, kind, batch uint8, bigs bool) {
		setup := []SetupFlags{0, SetupCQE32, SetupCQEMixed}[kind%3]
		const entries = 8
		ready := uint32(n) % (2*entries + 1)
		r := memoryRing(setup, entries, head, ready)
		for i := range r.cq.cqes {
			copy(sys.Bytes(&r.cq.cqes[i]), mem[min(16*i, len(mem)):])
		}
		size := 1 + int(batch)%(entries+2)
		total := uint32(0)
		for {
			before := r.cq.next
			got := reapAny(t, r, size, bigs)
			total += uint32(got)
			if r.cq.head.Load() != r.cq.next || r.cq.next-head > ready || r.cq.next-before < uint32(got) {
				t.Fatalf("head %d after %d of %d slots", r.cq.next, r.cq.next-head, ready)
			}
			if got < size {
				break
			}
		}
		if total > ready || r.Ready() != 0 || setup != SetupCQEMixed && total != ready {
			t.Fatalf("got %d completions from %d slots, %d slots are left", total, ready, r.Ready())
		}
	})
}

// reapAny reaps up to size completions and returns how many there were.
func reapAny(t *testing.T, r *Ring, size int, bigs bool) int {
	t.Helper()
	dst, all := make([]CQE, size), make([]BigCQE, size)
	n := 0
	if bigs {
		n = r.ReapBig(all)
		for i := range all[:n] {
			dst[i] = all[i].CQE
		}
	} else {
		n = r.Reap(dst)
	}
	if n > size {
		t.Fatalf("%d completions into %d", n, size)
	}
	for i, c := range dst[:n] {
		if r.cq.mixed && c.Has(CQESkip) {
			t.Fatalf("filler: %+v", c)
		}
		if r.cq.mixed && !c.Has(CQE32) && all[i].Big != [2]uint64{} {
			t.Fatalf("a second half of a small completion: %+v", all[i])
		}
	}
	return n
}

// FuzzOpSet decodes any memory as the result of a probe.
func FuzzOpSet(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add(bytes.Repeat([]byte{1}, 2048), uint8(255))
	f.Fuzz(func(t *testing.T, mem []byte, n uint8) {
		p := &abi.Probe{}
		copy(sys.Bytes(p), mem)
		p.OpsLen = n
		want := map[Op]bool{}
		for _, o := range p.Ops[:n] {
			if o.Flags&abi.IO_URING_OP_SUPPORTED != 0 {
				want[Op(o.Op)] = true
			}
		}
		s := opSetOf(p)
		if s.Len() != len(want) {
			t.Fatalf("%d opcodes, want %d", s.Len(), len(want))
		}
		for op := range want {
			if !s.Has(op) {
				t.Fatalf("no %v", op)
			}
		}
	})
}

// FuzzBufRing passes completions with any contents to a buffer ring, with any recycling in
// between. The data must lie in the named buffer, pieces of one buffer must not overlap
// before it is recycled, and the data must not be longer than the completion says.
// Promise: uring/bytes-shared-memory
func FuzzBufRing(f *testing.F) {
	f.Add([]byte{1, 2, 3, 250, 4, 0, 17, 90}, true)
	f.Add([]byte{0, 1, 0, 200, 0xff, 0xff, 3, 3}, false)
	f.Fuzz(func(t *testing.T, ops []byte, incremental bool) {
		b := memoryBufRing(t, BufRingOptions{Entries: 4, BufferSize: 16, Incremental: incremental})
		seen := map[uint16]int{} // bytes of a buffer since it was recycled
		see := func(id uint16, data []byte, done bool) {
			if int(id) >= b.Len() || len(data) > b.opts.BufferSize {
				t.Fatalf("%d bytes of buffer %d", len(data), id)
			}
			if seen[id] += len(data); incremental && seen[id] > b.opts.BufferSize {
				t.Fatalf("buffer %d gave %d bytes", id, seen[id])
			}
			if done {
				seen[id] = 0
				b.Recycle(id)
			}
		}
		for len(ops) >= 2 {
			c := CQE{Res: int32(int8(ops[0])), Flags: CQEFlags(ops[1]%16)<<abi.IORING_CQE_BUFFER_SHIFT | CQEFlags(ops[1]>>4)}
			if ops[1]&0x80 == 0 {
				data, done := b.Take(c)
				if data != nil {
					see(c.BufferID(), data, done)
				}
			} else {
				c.Flags |= abi.IORING_CQE_F_BUFFER
				total := 0
				b.TakeBundle(c, func(id uint16, data []byte, done bool) {
					total += len(data)
					see(id, data, done)
				})
				if want := max(int(c.Res), 0); int(c.BufferID()) < b.Len() && total != want {
					t.Fatalf("%d bytes of %d", total, want)
				}
			}
			b.Publish()
			if got := b.published(); got != b.tail {
				t.Fatalf("the kernel sees a tail of %d, want %d", got, b.tail)
			}
			ops = ops[2:]
		}
	})
}

// memoryBufRing returns a buffer ring that is not registered with a kernel and holds all of
// its buffers.
func memoryBufRing(t *testing.T, o BufRingOptions) *BufRing {
	t.Helper()
	slab, err := sys.MapAnon(o.Entries*o.BufferSize, false)
	if err != nil {
		t.Skipf("needs memory outside of Go's heap: %v", err)
	}
	mem, err := sys.MapAnon(o.Entries*16, false)
	if err != nil {
		t.Skipf("needs memory outside of Go's heap: %v", err)
	}
	b := &BufRing{ring: &Ring{}, opts: o, mem: mem, slab: slab, mask: uint16(o.Entries - 1)}
	t.Cleanup(func() {
		if err := b.free(); err != nil {
			t.Error(err)
		}
	})
	b.fill()
	return b
}
