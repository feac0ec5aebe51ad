// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// OpSet is a set of opcodes.
type OpSet [4]uint64

// Has reports whether the set holds op.
func (s OpSet) Has(op Op) bool { return s[op/64]&(1<<(op%64)) != 0 }

// Len returns the number of opcodes in the set.
func (s OpSet) Len() int {
	n := 0
	for op := range 256 {
		if s.Has(Op(op)) {
			n++
		}
	}
	return n
}

// Probe asks which opcodes the kernel supports. (5.6)
func (r *Ring) Probe() (OpSet, error) {
	p := &abi.Probe{}
	if _, err := r.register(OpRegisterProbe, sys.Pointer(p), uint32(len(p.Ops))); err != nil {
		return OpSet{}, err
	}
	return opSetOf(p), nil
}

// opSetOf decodes the kernel's answer.
func opSetOf(p *abi.Probe) OpSet {
	var s OpSet
	for _, o := range p.Ops[:min(int(p.OpsLen), len(p.Ops))] {
		if o.Flags&abi.IO_URING_OP_SUPPORTED != 0 {
			s[o.Op/64] |= 1 << (o.Op % 64)
		}
	}
	return s
}

// KernelInfo is what the kernel says of itself without a ring.
type KernelInfo struct {
	Ops         int // number of opcodes known
	RegisterOps int // number of register operations known
	Features    Features
	Setup       SetupFlags
	Enter       EnterFlags
	SQEFlags    SQEFlags
	// Queries is how many kinds of queries the kernel answers.
	Queries int
}

// Query asks the kernel what it supports, without a ring. (6.18)
func Query() (KernelInfo, error) {
	info := &abi.QueryOpcode{}
	hdr := &abi.QueryHdr{QueryData: sys.Addr(info), QueryOp: abi.IO_URING_QUERY_OPCODES,
		Size: uint32(sys.Size[abi.QueryOpcode]())}
	_, errno := sys.Register(-1, uint32(OpRegisterQuery), sys.Pointer(hdr), 0)
	keepAlive(info)
	if errno == 0 && hdr.Result < 0 {
		errno = errnoOf(hdr.Result)
	}
	if errno != 0 {
		return KernelInfo{}, sys.Error("io_uring_register "+OpRegisterQuery.String(), errno)
	}
	return KernelInfo{
		Ops: int(info.NrRequestOpcodes), RegisterOps: int(info.NrRegisterOpcodes),
		Features: Features(info.FeatureFlags), Setup: SetupFlags(info.RingSetupFlags),
		Enter: EnterFlags(info.EnterFlags), SQEFlags: SQEFlags(info.SqeFlags),
		Queries: int(info.NrQueryOpcodes),
	}, nil
}
