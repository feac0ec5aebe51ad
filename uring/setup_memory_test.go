// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func kernelSetupNoMmap(t *testing.T) {
	ringtest.NeedKernel(t, "NO_MMAP", "6.5")
	before := len(ctlRingMappings(t))
	r := ctlRing(t, uring.Options{Entries: 16, NoMmap: true})
	if n := len(ctlRingMappings(t)); n != before {
		t.Errorf("%d mappings of the ring, want none", n-before)
	}
	ctlNops(t, r, 1, 100)
	ctlOK(t, "close", r.Close())

	plain := ctlRing(t, uring.Options{Entries: 16})
	if n := len(ctlRingMappings(t)); n != before+2 {
		t.Errorf("%d mappings of an ordinary ring, want 2", n-before)
	}
	ctlOK(t, "close", plain.Close())
	for _, o := range []uring.Options{
		{Entries: 8, CQEntries: 64}, {Entries: 8, SQE128: true}, {Entries: 8, CQE32: true}, {Entries: 8, SQPoll: true},
	} {
		o.NoMmap = true
		r := ctlRing(t, o)
		ctlNops(t, r, 1, 200)
		ctlOK(t, "close", r.Close())
	}
	_, err := uring.Open(uring.Options{Entries: 1 << 20, NoMmap: true})
	ctlErrno(t, "too many entries", err, syscall.EINVAL)

	t.Run("large", func(t *testing.T) {
		ringtest.NeedKernel(t, "NO_MMAP of more than a page", "6.10")
		r := ctlRing(t, uring.Options{Entries: 1 << 20, NoMmap: true, Clamp: true})
		if r.SQEntries() != 1<<15 || r.CQEntries() != 1<<16 {
			t.Errorf("queues of %d and %d entries", r.SQEntries(), r.CQEntries())
		}
		ctlNops(t, r, 1, 1<<16+5)
	})
	t.Run("huge pages", func(t *testing.T) {
		if !ctlHugePages(t, 2) {
			_, err := uring.Open(uring.Options{HugePages: true})
			ctlErrno(t, "huge pages that are not there", err, syscall.ENOMEM)
			t.Skip("needs two free huge pages (vm.nr_hugepages)")
		}
		r := ctlRing(t, uring.Options{Entries: 1024, HugePages: true})
		ctlNops(t, r, 1, 3000)
	})
}

func kernelSetupRegisteredFDOnly(t *testing.T) {
	ringtest.NeedKernel(t, "REGISTERED_FD_ONLY", "6.5")
	before := len(ringtest.Descriptors(t, ""))
	for range 40 { // a thread has 16 slots
		r := ctlRing(t, uring.Options{Entries: 8, RegisteredFDOnly: true})
		if r.FD() != -1 || len(ringtest.Descriptors(t, "")) != before {
			t.Fatalf("descriptor %d, %d descriptors open, want %d", r.FD(), len(ringtest.Descriptors(t, "")), before)
		}
		ctlNops(t, r, 1, 20)
		if ops, err := r.Probe(); err != nil || !ops.Has(uring.OpNop) {
			t.Fatalf("probe: %v", err)
		}
		ctlOK(t, "close", r.Close())
	}
	r := ctlRing(t, uring.Options{Entries: 8, RegisteredFDOnly: true})
	ctlElsewhere(func() {
		ctlNext(t, r).Nop()
		if _, err := r.Submit(); err == nil {
			t.Error("another thread submitted")
		}
	})
	ringtest.Await(t, r, 1)
}

func kernelSetupNoSQArray(t *testing.T) {
	ringtest.NeedKernel(t, "NO_SQARRAY", "6.6")
	// The array takes four pages of 4 KiB.
	rings := func(o uring.Options) int {
		old := ctlRingMappings(t)
		r := ctlRing(t, o)
		size := 0
		for _, n := range ctlRingMappings(t) {
			size += n
		}
		for _, n := range old {
			size -= n
		}
		ctlNops(t, r, 1, 10000)
		ctlOK(t, "close", r.Close())
		return size
	}
	with := rings(uring.Options{Entries: 4096, CQEntries: 4096})
	without := rings(uring.Options{Entries: 4096, CQEntries: 4096, NoSQArray: true})
	if with-without < 4*4096-4096 {
		t.Errorf("the ring takes %d bytes, %d without the array", with, without)
	}
}
