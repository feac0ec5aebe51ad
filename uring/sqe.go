// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// SQE is a submission queue entry. A builder method sets every byte of it; the setters
// then change the fields that they name. Both return the entry, so that calls can be
// chained. [Ring.SQE] returns the entries of a ring; to build an entry elsewhere, use a
// variable of this type.
type SQE struct{ raw RawSQE }

// there panics for the nil that [Ring.SQE] returns, with a message that helps.
func (e *SQE) there() {
	if e == nil {
		panic(errNoEntry)
	}
}

// errNoEntry is what a builder panics with when it is called on nil.
var errNoEntry = fmt.Errorf("%w: SQE returned nil, and a builder was called on it: submit, then ask again; "+
	"a chain must fit into one submission, so raise Options.Entries if it is longer than Ring.SQEntries", ErrSQFull)

// BigSQE is a 128-byte entry of a ring with SQE128.
type BigSQE [2]SQE

// SQE returns the first half, for a builder.
func (b *BigSQE) SQE() *SQE { return &b[0] }

// Cmd returns the 80 bytes of command data that [SQE.UringCmd] sends. Build the
// first half before filling them.
func (b *BigSQE) Cmd() []byte { return sys.Bytes(b)[48:] }

// FD is a descriptor for an entry: a number of the process or a slot of the
// ring's fixed file table.
type FD struct {
	n     int32
	fixed bool
}

// Fd returns the FD of an ordinary descriptor.
func Fd(fd int) FD { return FD{n: int32(fd)} }

// FixedFd returns the FD of a slot of the fixed file table.
func FixedFd(slot int) FD { return FD{n: int32(slot), fixed: true} }

func (fd FD) flags() uint8 {
	if fd.fixed {
		return abi.IOSQE_FIXED_FILE
	}
	return 0
}

// Slot is where an operation that creates a descriptor puts it in the fixed
// file table.
type Slot uint32

// SlotAuto lets the kernel pick a free slot (see [Ring.SetFileAllocRange]); the
// result of the operation is its number.
const SlotAuto Slot = abi.IORING_FILE_INDEX_ALLOC

// index encodes s for the file_index field, where 0 means none. The number
// before SlotAuto, which no table has, must not turn into it.
func (s Slot) index() uint32 {
	if s == SlotAuto {
		return abi.IORING_FILE_INDEX_ALLOC
	}
	return min(uint32(s), abi.IORING_FILE_INDEX_ALLOC-2) + 1
}

// SetSlot makes an operation that creates descriptors put them into the fixed file table
// instead: Accept, OpenAt, OpenAt2 (5.15), Socket, AcceptMultishot (5.19) and Pipe (6.16).
// The flag for close-on-exec is not allowed then. AcceptMultishot needs SlotAuto, and ENFILE
// ends it when no slot is free. Pipe takes slot and slot+1, or with SlotAuto two slots whose
// numbers are in its array afterwards.
func (e *SQE) SetSlot(slot Slot) *SQE { e.raw.FileIndex = slot.index(); return e }

// AtCWD in the place of a directory's descriptor means the working directory (AT_FDCWD).
const AtCWD = -100

// maxTransfer is what the kernel moves at most in one operation (MAX_RW_COUNT
// with pages of 4 KiB); a longer buffer gives a short transfer.
const maxTransfer = 0x7ffff000

func byteCount(n int) uint32 { return uint32(min(max(n, 0), maxTransfer)) }

func count(n int) uint32 { return uint32(min(int64(n), math.MaxUint32)) }

// SetUserData sets the value that comes back in the completion.
func (e *SQE) SetUserData(v uint64) *SQE { e.raw.UserData = v; return e }

// SetFlags adds flags to those that the builder set.
func (e *SQE) SetFlags(f SQEFlags) *SQE { e.raw.Flags |= uint8(f); return e }

// SetPersonality makes the operation run with the credentials for which
// [Ring.RegisterPersonality] returned id. (5.6)
func (e *SQE) SetPersonality(id uint16) *SQE { e.raw.Personality = id; return e }

// SetIOPriority sets the I/O priority of a read or write, as ioprio_set(2)
// encodes it.
func (e *SQE) SetIOPriority(p uint16) *SQE { e.raw.Ioprio = p; return e }

// SetBufferGroup makes the kernel pick a buffer of a group for a read or
// receive, or the data of a send. (5.7)
func (e *SQE) SetBufferGroup(group uint16) *SQE {
	e.raw.Flags |= abi.IOSQE_BUFFER_SELECT
	e.raw.BufIndex = group
	return e
}

// Raw returns the entry in the kernel's layout. It is the one escape from the typed
// builders: the kernel gets the bytes unchanged. An address must obey the package's
// ownership rule and must not point to a stack.
func (e *SQE) Raw() *RawSQE { return &e.raw }

// RawSQE is struct io_uring_sqe. Comments name the other members of its unions.
type RawSQE struct {
	Opcode      uint8
	Flags       uint8
	Ioprio      uint16
	Fd          int32
	Off         uint64 // addr2; cmd_op in the first 32 bits
	Addr        uint64 // splice_off_in; level and optname
	Len         uint32
	OpFlags     uint32 // rw_flags, poll32_events, msg_flags and so on
	UserData    uint64
	BufIndex    uint16 // buf_group
	Personality uint16
	FileIndex   uint32 // splice_fd_in, zcrx_ifq_idx, optlen; addr_len in the first 16 bits
	Addr3       uint64 // attr_ptr, optval
	Pad2        uint64 // attr_type_mask
}

// bigEndian is the byte order of this machine.
var bigEndian = binary.NativeEndian.Uint16([]byte{1, 0}) != 1

// words encodes two 32-bit fields that share a word.
func words(lo, hi uint32) uint64 {
	if bigEndian {
		return uint64(lo)<<32 | uint64(hi)
	}
	return uint64(hi)<<32 | uint64(lo)
}

// halves encodes two 16-bit fields that share a word.
func halves(lo, hi uint16) uint32 {
	if bigEndian {
		return uint32(lo)<<16 | uint32(hi)
	}
	return uint32(hi)<<16 | uint32(lo)
}

// pollMask encodes a mask for poll32_events, whose halves are swapped on
// big-endian machines.
func pollMask(ev PollEvents) uint32 {
	if bigEndian {
		return uint32(ev)<<16 | uint32(ev)>>16
	}
	return uint32(ev)
}
