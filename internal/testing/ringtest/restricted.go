// SPDX-License-Identifier: MIT

package ringtest

import (
	"slices"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/uring"
)

// WantRestricted submits an entry of every opcode, with meaningless arguments, and
// fails when an allowed opcode is refused or another one is accepted.
func WantRestricted(t testing.TB, r *uring.Ring, allowed ...uring.Op) {
	t.Helper()
	for op := uring.Op(0); op < uring.OpCount; op++ {
		c := Do(t, r, func(e *uring.SQE) { *e.Raw() = uring.RawSQE{Opcode: uint8(op), Fd: -1} })
		refused := c.Errno() == syscall.EACCES || c.Errno() == syscall.EINVAL && !knows(t, op)
		if refused == slices.Contains(allowed, op) {
			t.Errorf("%v: %d, %v, allowed %v", op, c.Res, c.Err(), !refused)
		}
	}
}

func knows(t testing.TB, op uring.Op) bool {
	t.Helper()
	ops, err := probedOps()
	if err != nil {
		t.Fatal(err)
	}
	return ops.Has(op)
}
