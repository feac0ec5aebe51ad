// SPDX-License-Identifier: MIT

package ufile

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// TestRestrictedSystem tries operations that the rings of a restricted system refuse. All
// tests that run in every mode cover the operations that they must not refuse.
// Promise: ufile/options-restrict-rings
func TestRestrictedSystem(t *testing.T) {
	ringtest.NeedKernel(t, "RESTRICTIONS", "5.10")
	s, err := NewSystem(Options{Mode: ModeRing, Restrict: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.reactor()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, op := range []uring.Op{uring.OpOpenAt, uring.OpConnect, uring.OpSend, uring.OpUnlinkAt, uring.OpSplice} {
		var bare reactor.Op
		*bare.SQE.Raw() = uring.RawSQE{Opcode: uint8(op), Fd: -1}
		if res := r.Do(&bare); res.Errno() != syscall.EACCES {
			t.Errorf("%v: %+v, want EACCES", op, res)
		}
	}
	b, err := s.NewBatch(BatchOptions{Buffers: 2, BufferSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ringtest.WantRestricted(t, b.ring, uring.OpRead, uring.OpReadFixed, uring.OpWrite, uring.OpWriteFixed)
}
