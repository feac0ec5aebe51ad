// SPDX-License-Identifier: MIT

package uring

import (
	"fmt"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// sysPointer is the argument of a synchronous call; see package sys.
type sysPointer = sys.UnsafePointer

// Open opens a ring. Options may be nil for the zero value. The error wraps
// the errno: EPERM (forbidden by policy), ENOSYS (no io_uring), EINVAL (a flag
// the kernel does not know), ENOMEM (memlock limit before 5.12, or memory).
// Package features explains them.
func Open(o *Options) (*Ring, error) {
	if o == nil {
		o = &Options{}
	}
	flags, err := o.SetupFlags()
	if err != nil {
		return nil, err
	}
	p := &abi.Params{
		Flags:        uint32(flags),
		CqEntries:    o.CQEntries,
		SqThreadCPU:  o.SQPollCPU,
		SqThreadIdle: uint32(o.SQPollIdle / time.Millisecond),
	}
	if o.AttachWQ != nil {
		p.WqFd = uint32(o.AttachWQ.FD())
	}
	r := &Ring{setup: flags, registered: -1, waitArg: new(waitArg)}
	if err := r.open(o, p); err != nil {
		for _, m := range r.mem {
			_ = m.Unmap()
		}
		if r.fd != nil {
			_ = r.fd.Close()
		}
		return nil, err
	}
	return r, nil
}

func (r *Ring) open(o *Options, p *abi.Params) error {
	if r.setup&SetupNoMmap != 0 {
		if err := r.provideMemory(o, p); err != nil {
			return err
		}
	}
	fd, errno := sys.Setup(o.sqEntries(), p)
	if errno != 0 {
		return sys.Error("io_uring_setup", errno)
	}
	r.enterFD, r.features = fd, Features(p.Features)
	if r.setup&SetupRegisteredFDOnly != 0 {
		r.enterFlags, r.registered = abi.IORING_ENTER_REGISTERED_RING, fd
	} else {
		r.fd = sys.NewFD(fd)
	}
	if r.features&FeatNoIOWait != 0 && o.NoIOWait {
		r.enterFlags |= abi.IORING_ENTER_NO_IOWAIT
	}
	if r.setup&SetupNoMmap == 0 {
		if err := r.mapRings(p); err != nil {
			return err
		}
	}
	r.bind(p)
	return nil
}

// ringBytes returns the sizes of the rings and of the SQE array.
func (r *Ring) ringBytes(p *abi.Params) (sqRing, cqRing, sqes int) {
	sqRing = int(p.SqOff.Array)
	if r.setup&SetupNoSQArray == 0 {
		sqRing += int(p.SqEntries) * 4
	}
	cqRing = int(p.CqOff.Cqes) + int(p.CqEntries)*r.cqeSize()
	return sqRing, cqRing, int(p.SqEntries) * r.sqeSize()
}

func (r *Ring) sqeSize() int {
	n := int(sys.Size[abi.SQE]())
	if r.setup&SetupSQE128 != 0 {
		n *= 2
	}
	return n
}

func (r *Ring) cqeSize() int {
	n := int(sys.Size[abi.CQE]())
	if r.setup&SetupCQE32 != 0 {
		n *= 2
	}
	return n
}

func (r *Ring) mapRings(p *abi.Params) error {
	sqRing, cqRing, sqes := r.ringBytes(p)
	maps := []struct {
		off  int64
		size int
	}{{abi.IORING_OFF_SQ_RING, max(sqRing, cqRing)}, {abi.IORING_OFF_SQES, sqes}}
	if r.features&FeatSingleMmap == 0 { // before 5.4
		maps[0].size = sqRing
		maps = append(maps, maps[0])
		maps[2].off, maps[2].size = abi.IORING_OFF_CQ_RING, cqRing
	}
	for _, m := range maps {
		region, err := sys.MapRing(r.fd.Int(), m.off, m.size)
		if err != nil {
			return fmt.Errorf("uring: map ring: %w", err)
		}
		r.mem = append(r.mem, region)
	}
	return nil
}

// provideMemory sets up NO_MMAP: kernels before 6.10 want each area to be
// physically contiguous, so one larger than a page needs huge pages there.
func (r *Ring) provideMemory(o *Options, p *abi.Params) error {
	const header = 512 // the kernel's struct io_rings takes 320 bytes
	sqEntries := ceilPow2(o.sqEntries())
	cqEntries := ceilPow2(max(o.CQEntries, 1))
	if o.CQEntries == 0 {
		cqEntries = 2 * sqEntries
	}
	rings := header + int(cqEntries)*r.cqeSize() + int(sqEntries)*4
	for _, size := range []int{rings, int(sqEntries) * r.sqeSize()} {
		region, err := sys.MapAnon(size, o.HugePages)
		if err != nil {
			return fmt.Errorf("uring: ring memory: %w", err)
		}
		r.mem = append(r.mem, region)
	}
	p.CqOff.UserAddr = r.mem[0].Addr()
	p.SqOff.UserAddr = r.mem[1].Addr()
	return nil
}

// bind turns the kernel's offsets into typed views of the mapped memory.
func (r *Ring) bind(p *abi.Params) {
	rings, sqes := r.mem[0], r.mem[1]
	cqMem := rings
	if len(r.mem) > 2 {
		cqMem = r.mem[2]
	}
	s := &r.sq
	s.head, s.tail = rings.Word(p.SqOff.Head), rings.Word(p.SqOff.Tail)
	s.flags, s.dropped = rings.Word(p.SqOff.Flags), rings.Word(p.SqOff.Dropped)
	s.entries, s.mask = p.SqEntries, p.SqEntries-1
	if r.setup&SetupSQE128 != 0 {
		s.shift = 1
	}
	s.sqes = sys.Slice[abi.SQE](sqes, 0, int(p.SqEntries)<<s.shift)
	s.seen, s.next = s.head.Load(), s.tail.Load()
	if r.setup&SetupNoSQArray == 0 {
		array := sys.Slice[uint32](rings, p.SqOff.Array, int(p.SqEntries))
		for i := range array {
			array[i] = uint32(i) // entry i is always SQE i
		}
	}
	c := &r.cq
	c.head, c.tail = cqMem.Word(p.CqOff.Head), cqMem.Word(p.CqOff.Tail)
	c.overflow, c.flags = cqMem.Word(p.CqOff.Overflow), cqMem.Word(p.CqOff.Flags)
	c.entries, c.mask = p.CqEntries, p.CqEntries-1
	c.mixed = r.setup&SetupCQEMixed != 0
	if r.setup&SetupCQE32 != 0 {
		c.shift = 1
	}
	c.cqes = sys.Slice[abi.CQE](cqMem, p.CqOff.Cqes, int(p.CqEntries)<<c.shift)
	c.next = c.head.Load()
}

// ceilPow2 returns the smallest power of two that is at least n.
func ceilPow2(n uint32) uint32 {
	p := uint32(1)
	for p < n && p < 1<<31 {
		p <<= 1
	}
	return p
}

// Resize gives the ring new queues with room for the given numbers of entries,
// keeping what they hold; 0 leaves a size as it is. The CQ must have room for
// the completions that wait (EOVERFLOW). Needs DeferTaskrun and Linux 6.13;
// the kernel answers EINVAL otherwise. Nobody else may use the ring meanwhile.
func (r *Ring) Resize(sqEntries, cqEntries uint32) error {
	p := &abi.Params{SqEntries: sqEntries, CqEntries: cqEntries, Flags: abi.IORING_SETUP_CQSIZE}
	if sqEntries == 0 {
		p.SqEntries = r.sq.entries
	}
	if cqEntries == 0 {
		p.CqEntries = r.cq.entries
	}
	if r.setup&SetupNoMmap != 0 {
		return sys.Error("resize a ring in memory of its own", syscall.EINVAL)
	}
	// Entries handed out but not yet flushed live past the tail that the
	// kernel copies up to.
	r.sq.tail.Store(r.sq.next)
	if _, err := r.register(OpRegisterResizeRings, sys.Pointer(p), 1); err != nil {
		return err
	}
	for _, m := range r.mem {
		if err := m.Unmap(); err != nil {
			return err
		}
	}
	r.mem = r.mem[:0]
	if err := r.mapRings(p); err != nil {
		return err
	}
	r.bind(p)
	return nil
}
