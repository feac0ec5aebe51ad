// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerRegister(uring.OpRegisterProbe, row{since: "5.6", uses: []string{"Ring.Probe", "OpSet.Has"}, kernel: kernelRegisterProbe})
	ledgerRegister(uring.OpRegisterQuery, row{since: "6.18", uses: []string{"Query", "KernelInfo"}, kernel: kernelRegisterQuery})
}

// kernelRegisterProbe compares the result with trials: the kernel refuses each opcode that
// is not listed, and no known kernel lists more than its version has.
func kernelRegisterProbe(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		ops, err := r.Probe()
		ctlOK(t, "probe", err)
		for _, op := range []uring.Op{uring.OpNop, uring.OpReadv, uring.OpRead, uring.OpAsyncCancel} {
			if !ops.Has(op) {
				t.Errorf("no %v", op)
			}
		}
		for i := range 256 {
			op := uring.Op(i)
			if ops.Has(op) {
				continue
			}
			c := ringtest.Do(t, r, func(e *uring.SQE) { e.Nop().Raw().Opcode = uint8(op) })
			if c.Errno() != syscall.EINVAL && c.Errno() != syscall.EOPNOTSUPP {
				t.Errorf("%v is not listed; submitting it completes with %v", op, c.Err())
			}
		}
		if n := ops.Len(); n < 30 || n > 200 {
			t.Errorf("%d opcodes", n)
		}
	})
	r := ctlRing(t, uring.Options{})
	ctlOK(t, "close", r.Close())
	ops, err := r.Probe()
	ctlErrno(t, "probe a closed ring", err, syscall.EBADF)
	if ops.Len() != 0 {
		t.Error("a closed ring lists opcodes")
	}
}

// kernelRegisterQuery compares the result with those of other calls.
func kernelRegisterQuery(t *testing.T) {
	ringtest.NeedRing(t)
	info, err := uring.Query()
	if !ctlHasKernel(t, "6.18") {
		ctlErrno(t, "query", err, syscall.EINVAL)
	}
	ringtest.NeedKernel(t, "QUERY", "6.18")
	ctlOK(t, "query", err)
	r := ctlRing(t, uring.Options{})
	ops, err := r.Probe()
	ctlOK(t, "probe", err)
	for op := range uring.Op(255) {
		if ops.Has(op) && int(op) >= info.Ops {
			t.Errorf("%v is probed, the query knows %d opcodes", op, info.Ops)
		}
	}
	if info.Ops < uring.OpCount || info.RegisterOps < uring.RegisterOpCount || info.Queries < 0 {
		t.Errorf("%+v: fewer than Linux 6.18 has", info)
	}
	if info.Features != r.Features() {
		t.Errorf("features %#x, a ring has %#x", info.Features, r.Features())
	}
	if want := uring.SetupFlags(1<<19 - 1); info.Setup&want != want {
		t.Errorf("setup flags %#x", info.Setup)
	}
	if want := uint32(0xff); info.Enter&want != want {
		t.Errorf("enter flags %#x", info.Enter)
	}
	if want := uring.SQEFlags(0x7f); info.SQEFlags&want != want {
		t.Errorf("SQE flags %#x", info.SQEFlags)
	}
}

func TestOpSet(t *testing.T) {
	var s uring.OpSet
	for _, op := range []uring.Op{0, 1, 63, 64, 127, 128, 255} {
		if s.Has(op) {
			t.Errorf("an empty set contains %d", op)
		}
		s[op/64] |= 1 << (op % 64)
		if !s.Has(op) {
			t.Errorf("the set lacks %d", op)
		}
	}
	if s.Len() != 7 || s.Has(2) || s.Has(65) {
		t.Errorf("%d opcodes of 7: %x", s.Len(), s)
	}
}
