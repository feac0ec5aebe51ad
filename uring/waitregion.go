// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// WaitRegion is memory shared with the kernel that holds the arguments of
// waits, so that a wait copies nothing. It belongs to its ring and is freed
// with it.
type WaitRegion struct {
	slots []abi.RegWait
}

// WaitSlot is one set of arguments in a [WaitRegion].
type WaitSlot struct {
	reg    *abi.RegWait
	offset uintptr
}

// RegisterWaitRegion gives a ring opened with Disabled, before [Ring.Enable],
// a region of n slots. (6.13)
func (r *Ring) RegisterWaitRegion(n int) (*WaitRegion, error) {
	if n <= 0 {
		return nil, errors.New("uring: a wait region needs at least one slot")
	}
	mem, err := sys.MapAnon(n*int(sys.Size[abi.RegWait]()), false)
	if err != nil {
		return nil, err
	}
	desc := &abi.RegionDesc{UserAddr: mem.Addr(), Size: uint64(mem.Size()), Flags: abi.IORING_MEM_REGION_TYPE_USER}
	arg := &abi.MemRegionReg{RegionUptr: sys.Addr(desc), Flags: abi.IORING_MEM_REGION_REG_WAIT_ARG}
	_, err = r.register(OpRegisterMemRegion, sys.Pointer(arg), 1)
	keepAlive(desc)
	if err != nil {
		return nil, errors.Join(err, mem.Unmap())
	}
	r.extra = append(r.extra, mem)
	return &WaitRegion{sys.Slice[abi.RegWait](mem, 0, n)}, nil
}

// Slot returns slot i for [WaitOptions.Registered]. A slot serves one wait at a
// time, and none after the ring was closed.
func (w *WaitRegion) Slot(i int) *WaitSlot {
	return &WaitSlot{&w.slots[i], uintptr(i) * sys.Size[abi.RegWait]()}
}

// Set fills the slot: timeout bounds the wait, 0 means none, a negative one is
// over at once; minWait is as in [WaitOptions].
func (s *WaitSlot) Set(timeout, minWait time.Duration) {
	*s.reg = abi.RegWait{MinWaitUsec: minWaitMicros(minWait)}
	if timeout != 0 {
		s.reg.Ts = timespec(max(timeout, 1))
		s.reg.Flags = abi.IORING_REG_WAIT_TS
	}
}
