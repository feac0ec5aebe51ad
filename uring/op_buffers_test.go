// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpProvideBuffers, row{
		since:   "5.7",
		uses:    []string{"SQE.ProvideBuffers"},
		goldens: provideGoldens,
		kernel:  func(t *testing.T) { ringtest.OverFlavours(t, kernelProvideBuffers) },
	})
	ledgerOp(uring.OpRemoveBuffers, row{
		since: "5.7",
		uses:  []string{"SQE.RemoveBuffers"},
		goldens: []golden{
			{"remove", func(e *uring.SQE) { e.RemoveBuffers(3, 0x203) },
				abi.SQE{Opcode: 32, Fd: 3, BufIndex: 0x203}},
			{"all", func(e *uring.SQE) { e.RemoveBuffers(65536, 0) },
				abi.SQE{Opcode: 32, Fd: 65536}},
		},
		kernel: func(t *testing.T) { ringtest.OverFlavours(t, kernelRemoveBuffers) },
	})
}

var provideGoldens = []golden{
	{"all", func(e *uring.SQE) { e.ProvideBuffers(goldenBuf, 100, 3, 0x203, 0x405) },
		abi.SQE{Opcode: 31, Fd: 3, Off: 0x405, Addr: goldenBufAddr, Len: 100, BufIndex: 0x203}},
	{"part", func(e *uring.SQE) { e.ProvideBuffers(goldenBuf, 10, 2, 0, 0) },
		abi.SQE{Opcode: 31, Fd: 2, Addr: goldenBufAddr, Len: 10}},
	// More buffers than p holds would give foreign memory to the kernel.
	{"more than the memory holds", func(e *uring.SQE) { e.ProvideBuffers(goldenBuf, 101, 3, 1, 0xffff) },
		abi.SQE{Opcode: 31, Fd: 2, Off: 0xffff, Addr: goldenBufAddr, Len: 101, BufIndex: 1}},
	{"negative size", func(e *uring.SQE) { e.ProvideBuffers(goldenBuf, -1, 3, 1, 0) },
		abi.SQE{Opcode: 31, Fd: 3, Addr: goldenBufAddr, BufIndex: 1}},
}

func kernelProvideBuffers(t *testing.T, r *uring.Ring) {
	const size, n, group, first = 8, 4, 5, 100
	rd, wr := osPipe(t)
	p := make([]byte, size*n)
	keep(t, p)
	provide := func(p []byte, size, n int) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.ProvideBuffers(p, size, n, group, first) })
	}
	wantRes(t, provide(p, size, n), 0)
	seen := map[uint16]bool{}
	for _, s := range []string{"abcdefgh", "ij", "k", "lmnopqrs"} {
		write(t, wr, s)
		c := ringtest.Do(t, r, func(e *uring.SQE) { e.ReadSelect(fdOf(rd), 0, 0, group) })
		wantRes(t, c, len(s))
		id := c.BufferID()
		if !c.Has(uring.CQEBuffer) || id < first || id >= first+n || seen[id] {
			t.Fatalf("completion %+v, ids before it: %v", c, seen)
		}
		seen[id] = true
		at := int(id-first) * size
		if got := string(p[at : at+len(s)]); got != s {
			t.Fatalf("buffer %d holds %q, want %q", id, got, s)
		}
	}
	write(t, wr, "x")
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.ReadSelect(fdOf(rd), 0, 0, group) }), syscall.ENOBUFS)

	if c := provide(p, 0, n); c.Res >= 0 {
		t.Errorf("buffers without a length: %+v", c)
	}
	if c := provide(nil, size, n); c.Res >= 0 {
		t.Errorf("no buffers: %+v", c)
	}
}

func kernelRemoveBuffers(t *testing.T, r *uring.Ring) {
	const size, group = 8, 5
	rd, wr := osPipe(t)
	p := make([]byte, size*4)
	keep(t, p)
	remove := func(n int, group uint16) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.RemoveBuffers(n, group) })
	}
	wantErrno(t, remove(1, group), syscall.ENOENT)
	wantRes(t, ringtest.Do(t, r, func(e *uring.SQE) { e.ProvideBuffers(p, size, 4, group, 0) }), 0)
	wantRes(t, remove(1, group), 1)
	write(t, wr, "x")
	c := ringtest.Do(t, r, func(e *uring.SQE) { e.ReadSelect(fdOf(rd), 0, 0, group) })
	wantRes(t, c, 1)
	wantRes(t, remove(100, group), 2)
	write(t, wr, "x")
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.ReadSelect(fdOf(rd), 0, 0, group) }), syscall.ENOBUFS)
}
