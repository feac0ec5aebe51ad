// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Restrictions are all that a restricted ring may do; what they do not name is
// refused with EACCES.
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

// setCPU sets a bit of a cpu_set_t, which is an array of native longs.
func setCPU(mask []byte, cpu int) {
	word := mask[cpu/64*8 : cpu/64*8+8]
	binary.NativeEndian.PutUint64(word, binary.NativeEndian.Uint64(word)|1<<(cpu%64))
}
