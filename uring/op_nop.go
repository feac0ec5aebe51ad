// SPDX-License-Identifier: MIT

package uring

import "github.com/ringside-io/ringside/internal/abi"

// NopOptions make a no-op do what tests need.
type NopOptions struct {
	// Inject makes the operation complete with Result, for example a negative
	// errno. (6.10)
	Inject bool
	Result int32
	// File makes the operation take a reference to FD. (6.13)
	File bool
	FD   FD
	// FixedBuffer makes it look up the registered buffer BufIndex. (6.13)
	FixedBuffer bool
	BufIndex    uint16
	// TaskWork completes through task work. (6.16)
	TaskWork bool
	// Big posts a 32-byte completion with these values, on rings that have
	// them. (6.18)
	Big       bool
	BigValues [2]uint64
}

// Nop does nothing; the result is 0. (5.1)
func (e *SQE) Nop() *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_NOP, Fd: -1}}
	return e
}

// NopWith is [SQE.Nop] with options, for tests. Kernels before 6.10 ignore or
// reject them.
func (e *SQE) NopWith(o NopOptions) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_NOP, Fd: -1}}
	if o.Inject {
		e.raw.OpFlags |= abi.IORING_NOP_INJECT_RESULT
		e.raw.Len = uint32(o.Result)
	}
	if o.File {
		e.raw.OpFlags |= abi.IORING_NOP_FILE
		e.raw.Fd = o.FD.n
		if o.FD.fixed {
			e.raw.OpFlags |= abi.IORING_NOP_FIXED_FILE
		}
	}
	if o.FixedBuffer {
		e.raw.OpFlags |= abi.IORING_NOP_FIXED_BUFFER
		e.raw.BufIndex = o.BufIndex
	}
	if o.TaskWork {
		e.raw.OpFlags |= abi.IORING_NOP_TW
	}
	if o.Big {
		e.raw.OpFlags |= abi.IORING_NOP_CQE32
		e.raw.Off, e.raw.Addr = o.BigValues[0], o.BigValues[1]
	}
	return e
}
