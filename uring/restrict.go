// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"slices"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Restrictions list what a restricted ring may do. The kernel refuses everything else
// with EACCES.
type Restrictions struct {
	Ops           []Op
	RegisterOps   []RegisterOp
	FlagsAllowed  SQEFlags // flags that an entry may carry
	FlagsRequired SQEFlags // flags that every entry must carry
}

// Restrict limits a ring opened with Disabled, once, before [Ring.Enable],
// which is always allowed. (5.10)
func (r *Ring) Restrict(rs Restrictions) error {
	table := make([]abi.Restriction, 0, len(rs.Ops)+len(rs.RegisterOps)+2)
	for _, op := range rs.Ops {
		table = append(table, abi.Restriction{Opcode: abi.IORING_RESTRICTION_SQE_OP, Value: uint8(op)})
	}
	for _, op := range rs.RegisterOps {
		table = append(table, abi.Restriction{Opcode: abi.IORING_RESTRICTION_REGISTER_OP, Value: uint8(op)})
	}
	// Always there, as the kernel refuses an empty table.
	table = append(table, abi.Restriction{Opcode: abi.IORING_RESTRICTION_SQE_FLAGS_ALLOWED, Value: uint8(rs.FlagsAllowed)})
	if rs.FlagsRequired != 0 {
		table = append(table, abi.Restriction{Opcode: abi.IORING_RESTRICTION_SQE_FLAGS_REQUIRED, Value: uint8(rs.FlagsRequired)})
	}
	_, err := r.register(OpRegisterRestrictions, sys.SlicePointer(table), count(len(table)))
	return err
}

// restrict limits a ring before its start.
func (r *Ring) restrict(o *Options) error {
	err := r.Restrict(*o.Restrict)
	if errors.Is(err, syscall.EINVAL) {
		err = r.restrictKnown(*o.Restrict)
	}
	if err != nil || o.Disabled {
		return err
	}
	return r.Enable()
}

// restrictKnown leaves out operations and flags that the kernel does not know and
// therefore refuses to allow. Only newer kernels report which register operations they
// know; the numbers follow their age.
func (r *Ring) restrictKnown(rs Restrictions) error {
	known, err := r.Probe()
	if err != nil {
		return err
	}
	rs.Ops = slices.DeleteFunc(slices.Clone(rs.Ops), func(op Op) bool { return !known.Has(op) })
	rs.RegisterOps = slices.Sorted(slices.Values(rs.RegisterOps))
	for {
		err := r.Restrict(rs)
		n := len(rs.RegisterOps)
		if !errors.Is(err, syscall.EINVAL) || n == 0 {
			return err
		}
		rs.RegisterOps = rs.RegisterOps[:n-1]
	}
}
