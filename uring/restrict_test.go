// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerRegister(uring.OpRegisterRestrictions, row{since: "5.10", uses: []string{"Ring.Restrict", "Restrictions"}, kernel: kernelRegisterRestrictions})
}

func kernelRegisterRestrictions(t *testing.T) {
	ringtest.NeedKernel(t, "RESTRICTIONS", "5.10")
	restricted := func(t *testing.T, rs uring.Restrictions) *uring.Ring {
		r := ctlRing(t, uring.Options{Disabled: true})
		ctlOK(t, "restrict", r.Restrict(rs))
		ctlErrno(t, "restrict twice", r.Restrict(rs), syscall.EBUSY)
		ctlOK(t, "enable", r.Enable())
		return r
	}
	try := func(t *testing.T, r *uring.Ring, what string, allowed bool, build func(e *uring.SQE)) {
		t.Helper()
		if c := ringtest.Do(t, r, build); allowed && c.Res != 0 || !allowed && c.Errno() != syscall.EACCES {
			t.Errorf("%s: %+v (%v), allowed should be %v", what, c, c.Err(), allowed)
		}
	}
	nop := func(f uring.SQEFlags) func(e *uring.SQE) {
		return func(e *uring.SQE) { e.Nop().SetFlags(f) }
	}
	cancel := func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{Any: true, All: true}) }

	t.Run("opcodes", func(t *testing.T) {
		r := restricted(t, uring.Restrictions{Ops: []uring.Op{uring.OpNop}})
		try(t, r, "NOP", true, nop(0))
		try(t, r, "ASYNC_CANCEL", false, cancel)
		try(t, r, "NOP with a flag", false, nop(uring.SQEAsync))
		_, err := r.Probe()
		ctlErrno(t, "probe", err, syscall.EACCES)
	})
	t.Run("register", func(t *testing.T) {
		r := restricted(t, uring.Restrictions{RegisterOps: []uring.RegisterOp{uring.OpRegisterProbe}})
		_, err := r.Probe()
		ctlOK(t, "probe", err)
		ctlErrno(t, "register files", r.RegisterFiles([]int{0}), syscall.EACCES)
		try(t, r, "NOP", false, nop(0))
	})
	t.Run("flags", func(t *testing.T) {
		r := restricted(t, uring.Restrictions{Ops: []uring.Op{uring.OpNop}, FlagsAllowed: uring.SQEAsync, FlagsRequired: uring.SQEDrain})
		try(t, r, "NOP without the required flag", false, nop(0))
		try(t, r, "NOP with the required flag", true, nop(uring.SQEDrain))
		try(t, r, "NOP with both flags", true, nop(uring.SQEDrain|uring.SQEAsync))
		try(t, r, "NOP with the allowed flag only", false, nop(uring.SQEAsync))
		try(t, r, "NOP with a third flag", false, nop(uring.SQEDrain|uring.SQEHardLink))
	})
	t.Run("at setup", func(t *testing.T) {
		// An opcode that no kernel has is left out, at any position.
		rs := &uring.Restrictions{Ops: []uring.Op{254, uring.OpNop}, RegisterOps: []uring.RegisterOp{254, uring.OpRegisterProbe}}
		r := ctlRing(t, uring.Options{Restrict: rs})
		try(t, r, "NOP", true, nop(0))
		try(t, r, "ASYNC_CANCEL", false, cancel)
		_, err := r.Probe()
		ctlOK(t, "probe", err)
		ctlErrno(t, "register files", r.RegisterFiles([]int{0}), syscall.EACCES)
		r = ctlRing(t, uring.Options{Restrict: rs, Disabled: true})
		ctlErrno(t, "restrict twice", r.Restrict(*rs), syscall.EBUSY)
		ctlOK(t, "enable", r.Enable())
		try(t, r, "NOP", true, nop(0))
	})
	t.Run("nothing", func(t *testing.T) {
		r := restricted(t, uring.Restrictions{})
		try(t, r, "NOP", false, nop(0))
		_, err := r.Probe()
		ctlErrno(t, "probe", err, syscall.EACCES)
	})
	t.Run("refused", func(t *testing.T) {
		r := ctlRing(t, uring.Options{Disabled: true})
		ctlErrno(t, "an invalid opcode", r.Restrict(uring.Restrictions{Ops: []uring.Op{0xff}}), syscall.EINVAL)
		ctlOK(t, "restrict after an error", r.Restrict(uring.Restrictions{Ops: []uring.Op{uring.OpNop}}))
		enabled := ctlRing(t, uring.Options{})
		ctlErrno(t, "an enabled ring", enabled.Restrict(uring.Restrictions{}), ctlEBADFD)
	})
}
