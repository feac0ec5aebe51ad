// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestClose closes rings in every state repeatedly: descriptors and the 16 registered
// indices of a thread must not run out.
func TestClose(t *testing.T) {
	ringtest.NeedRing(t)
	before := len(ringtest.Descriptors(t, ""))
	for range 40 {
		r := ctlRing(t, uring.Options{})
		ctlOK(t, "register the ring", r.RegisterRingFD())
		ctlNops(t, r, 1, 3)
		ctlOK(t, "close", r.Close())
		ctlOK(t, "close twice", r.Close())
	}
	if n := len(ringtest.Descriptors(t, "")); n != before {
		t.Errorf("%d descriptors open, want %d", n, before)
	}
	r := ctlRing(t, uring.Options{})
	ctlOK(t, "close", r.Close())
	if r.SQE() != nil || r.BigSQE() != nil || r.SQSpace() != 0 || r.Pending() != 0 || r.Ready() != 0 || r.FD() != -1 {
		t.Error("a closed ring has entries")
	}
	if n := r.Reap(make([]uring.CQE, 4)); n != 0 {
		t.Errorf("a closed ring has %d completions", n)
	}
	if n, err := r.Submit(); n != 0 || err != nil {
		t.Errorf("submit on a closed ring without entries: %d, %v", n, err)
	}
	_, err := r.SubmitAndWait(1)
	ctlErrno(t, "wait on a closed ring", err, syscall.EBADF)
	_, err = r.Probe()
	ctlErrno(t, "probe a closed ring", err, syscall.EBADF)
	_, err = r.NewBufRing(uring.BufRingOptions{Entries: 1, BufferSize: 1})
	ctlErrno(t, "buffer ring of a closed ring", err, syscall.EBADF)
}

// TestCloseElsewhere closes a ring whose registered index belongs to another thread. The
// index of a second ring, which has the same number on the closing thread, must stay valid.
func TestCloseElsewhere(t *testing.T) {
	ringtest.NeedKernel(t, "registered ring descriptors", "5.18")
	r := ctlRing(t, uring.Options{})
	ctlOK(t, "register the ring", r.RegisterRingFD())
	ctlElsewhere(func() {
		other, err := uring.Open(uring.Options{})
		ctlOK(t, "open", err)
		ctlOK(t, "register the ring", other.RegisterRingFD())
		if r.UnregisterRingFD() == nil || r.Close() == nil {
			t.Error("Close on another thread returned no error")
		}
		ctlNops(t, other, 1, 3)
		ctlOK(t, "close", other.Close())
	})
	if err := r.Close(); err != nil && ctlHasKernel(t, "6.3") {
		t.Errorf("close the rest: %v", err)
	}

	// While the kernel still has the buffers registered, they stay mapped.
	ringtest.NeedKernel(t, "register calls through a registered ring", "6.3")
	r = ctlRing(t, uring.Options{SingleIssuer: true})
	b := ctlBufRing(t, r, uring.BufRingOptions{Entries: 4, BufferSize: 32})
	ctlOK(t, "register the ring", r.RegisterRingFD())
	ctlElsewhere(func() {
		if r.Close() == nil {
			t.Error("Close on another thread returned no error")
		}
	})
	if clear(b.Buffer(3)); len(b.Buffer(3)) != 32 {
		t.Error("the buffers were unmapped before the ring was closed")
	}
	ctlOK(t, "close the rest", r.Close())
	ctlOK(t, "close after the ring", b.Close())
}
