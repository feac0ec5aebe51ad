// SPDX-License-Identifier: MIT

package uring

import (
	"errors"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// ZCRX is a hardware receive queue whose packets the network card writes
// straight into memory of the process.
type ZCRX struct {
	// ID is what [SQE.RecvZC] takes.
	ID uint32
	// Area is where the data arrives; RefillRing is shared with the kernel to
	// give parts of it back, at the offsets in the fields below.
	Area, RefillRing []byte
	Head, Tail, RQEs uint32
	Token            uint64 // the area's part of a refill entry
	area, refill     *sys.Region
}

// RegisterZCRX claims receive queue rxq of network interface ifIndex, with an
// area of the given size in bytes and a refill ring of entries. It needs
// CAP_NET_ADMIN, a card with header split and flow steering, and a ring with
// DeferTaskrun and CQE32. (6.15)
func (r *Ring) RegisterZCRX(ifIndex, rxq, entries, areaSize int) (*ZCRX, error) {
	z := &ZCRX{}
	var err error
	if z.area, err = sys.MapAnon(areaSize, false); err != nil {
		return nil, err
	}
	const header = 4096
	if z.refill, err = sys.MapAnon(header+entries*16, false); err != nil {
		return nil, errors.Join(err, z.area.Unmap())
	}
	area := &abi.ZcrxAreaReg{Addr: z.area.Addr(), Len: uint64(z.area.Size())}
	region := &abi.RegionDesc{UserAddr: z.refill.Addr(), Size: uint64(z.refill.Size()), Flags: abi.IORING_MEM_REGION_TYPE_USER}
	arg := &abi.ZcrxIfqReg{IfIdx: uint32(ifIndex), IfRxq: uint32(rxq), RqEntries: uint32(entries),
		AreaPtr: sys.Addr(area), RegionPtr: sys.Addr(region)}
	_, err = r.register(OpRegisterZCRXIFQ, sys.Pointer(arg), 1)
	keepAlive(area)
	keepAlive(region)
	if err != nil {
		return nil, errors.Join(err, z.area.Unmap(), z.refill.Unmap())
	}
	r.extra = append(r.extra, z.area, z.refill)
	z.ID, z.Token = arg.ZcrxID, area.RqAreaToken
	z.Head, z.Tail, z.RQEs = arg.Offsets.Head, arg.Offsets.Tail, arg.Offsets.Rqes
	z.Area, z.RefillRing = z.area.Bytes(), z.refill.Bytes()
	return z, nil
}
