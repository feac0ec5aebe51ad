// SPDX-License-Identifier: MIT

package uring

import (
	"math"
	"sync/atomic"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
)

// memoryRing returns a ring in plain memory, without a kernel. Its CQ holds n entries from
// head on.
func memoryRing(setup SetupFlags, entries, head, n uint32) *Ring {
	w := new([8]atomic.Uint32)
	r := &Ring{enterFD: -1, registered: -1, setup: setup, waitArg: new(waitArg)}
	r.sq = sq{head: &w[0], tail: &w[1], flags: &w[2], entries: entries, mask: entries - 1}
	r.cq = cq{head: &w[4], tail: &w[5], flags: &w[6], overflow: &w[7], entries: entries, mask: entries - 1,
		mixed: setup&SetupCQEMixed != 0, next: head}
	if setup&SetupSQE128 != 0 {
		r.sq.shift = 1
	}
	if setup&SetupCQE32 != 0 {
		r.cq.shift = 1
	}
	r.sq.sqes = make([]SQE, entries<<r.sq.shift)
	r.cq.cqes = make([]CQE, entries<<r.cq.shift)
	r.cq.head.Store(head)
	r.cq.tail.Store(head + n)
	return r
}

// TestCopyQueues copies entries across the wrap of the counters and of both
// queues, for each size of entries.
func TestCopyQueues(t *testing.T) {
	head := ^uint32(2)
	for _, setup := range []SetupFlags{0, SetupSQE128, SetupCQE32} {
		old, grown := memoryRing(setup, 8, head, 7), memoryRing(setup, 16, head, 7)
		old.sq.head.Store(head)
		old.sq.tail.Store(head + 5)
		for i := range old.sq.sqes {
			old.sq.sqes[i].raw.UserData = 100 + uint64(i)
		}
		for i := range old.cq.cqes {
			old.cq.cqes[i].UserData = 200 + uint64(i)
		}
		grown.sq.copyFrom(&old.sq)
		grown.cq.copyFrom(&old.cq)
		for i := range uint32(5) {
			at := head + i
			for half := range uint32(1) << old.sq.shift {
				got := grown.sq.sqes[(at&15)<<old.sq.shift+half].raw.UserData
				if want := 100 + uint64((at&7)<<old.sq.shift+half); got != want {
					t.Errorf("flags %#x: entry %d, half %d: %d, want %d", setup, i, half, got, want)
				}
			}
		}
		dst := make([]BigCQE, 10)
		if n := grown.ReapBig(dst); n != 7 {
			t.Fatalf("flags %#x: %d completions, want 7", setup, n)
		}
		for i, c := range dst[:7] {
			at := uint64((head+uint32(i))&7) << old.cq.shift
			if c.UserData != 200+at || c.Big[0] != (200+at+1)*uint64(old.cq.shift) {
				t.Errorf("flags %#x: completion %d: %+v", setup, i, c)
			}
		}
	}
}

// TestReapMixed decodes filler entries, entries of both sizes, a big entry that the end of
// the queue splits (possible after a resize), and a first half without a second.
func TestReapMixed(t *testing.T) {
	r := memoryRing(SetupCQEMixed, 8, 5, 8)
	big := func(at int, u uint64) {
		r.cq.cqes[at] = CQE{UserData: u, Flags: abi.IORING_CQE_F_32}
		r.cq.cqes[(at+1)%8] = CQE{UserData: u + 1, Res: int32(u + 2), Flags: CQEFlags(u + 3)}
	}
	r.cq.cqes[5] = CQE{UserData: 10, Res: -3}
	r.cq.cqes[6] = CQE{Flags: abi.IORING_CQE_F_SKIP}
	big(7, 20)
	big(1, 30)
	r.cq.cqes[3] = CQE{UserData: 40}
	r.cq.cqes[4] = CQE{UserData: 50, Flags: abi.IORING_CQE_F_32}
	dst := make([]BigCQE, 8)
	n := r.ReapBig(dst[:1])
	n += r.ReapBig(dst[1:])
	want := []BigCQE{
		{CQE: CQE{UserData: 10, Res: -3}},
		{CQE{UserData: 20, Flags: abi.IORING_CQE_F_32}, [2]uint64{21, words(22, 23)}},
		{CQE{UserData: 30, Flags: abi.IORING_CQE_F_32}, [2]uint64{31, words(32, 33)}},
		{CQE: CQE{UserData: 40}},
		{CQE: CQE{UserData: 50, Flags: abi.IORING_CQE_F_32}},
	}
	if n != len(want) {
		t.Fatalf("%d completions: %+v", n, dst[:n])
	}
	for i, c := range dst[:n] {
		if c != want[i] {
			t.Errorf("completion %+v, want %+v", c, want[i])
		}
	}
	if r.Ready() != 0 || r.cq.head.Load() != 13 {
		t.Errorf("%d slots are left, the head is at %d", r.Ready(), r.cq.head.Load())
	}
}

// TestArrayPlace refuses a queue layout that the kernel does not use.
func TestArrayPlace(t *testing.T) {
	if cacheLine() != 64 {
		t.Skip("needs cache lines of 64 bytes: the expected layouts are those of a kernel with such lines")
	}
	for _, test := range []struct {
		setup                SetupFlags
		cqes, entries, array uint32
		want                 uint32 // for twice the entries; 0 means refused
	}{
		{0, 64, 8, 192, 320},
		{0, 320, 8, 448, 576},
		{0, 64, 1, 128, 128},
		{SetupCQE32, 64, 8, 384, 640},
		{SetupCQE32, 64, 8, 320, 576},
		{0, 64, 8, 256, 0},
		{SetupNoSQArray, 64, 8, 0, 0},
	} {
		r := memoryRing(test.setup, test.entries, 0, 0)
		r.cqesOff, r.arrayOff = test.cqes, test.array
		place, err := r.arrayPlace()
		if test.want == 0 && test.setup&SetupNoSQArray == 0 {
			if err == nil {
				t.Errorf("%+v: accepted", test)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", test, err)
		} else if got := place(test.cqes, 2*test.entries); got != test.want {
			t.Errorf("%+v: place %d", test, got)
		}
	}
}

func TestMinWaitMicros(t *testing.T) {
	for d, want := range map[int64]uint32{-5: 0, 0: 0, 1: 1, 1000: 1, 1001: 2, 1 << 62: 3600e6} {
		if got := minWaitMicros(durationOf(d)); got != want {
			t.Errorf("%d ns: %d µs, want %d", d, got, want)
		}
	}
}

func TestIdleMillis(t *testing.T) {
	for d, want := range map[int64]uint32{0: 0, 1: 1, 1e6: 1, 1e6 + 1: 2, 1 << 62: 1<<32 - 1, math.MaxInt64: 1<<32 - 1} {
		o := Options{SQPollIdle: durationOf(d)}
		if got := o.idleMillis(); got != want {
			t.Errorf("%d ns: %d ms, want %d", d, got, want)
		}
	}
}
