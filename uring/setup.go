// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// sysPointer is the argument of a synchronous call; see package sys.
type sysPointer = sys.UnsafePointer

// Open opens a ring. The error wraps the errno: EPERM (forbidden by policy), ENOSYS (no
// io_uring), EINVAL (a flag that the kernel does not know), ENOMEM (no memory, or
// RLIMIT_MEMLOCK, which limits rings before 5.12 and again on 6.18). Package features
// explains them.
func Open(o Options) (*Ring, error) {
	flags, err := o.SetupFlags()
	if err != nil {
		return nil, err
	}
	p := &abi.Params{
		Flags:        uint32(flags),
		CqEntries:    o.CQEntries,
		SqThreadCPU:  o.SQPollCPU,
		SqThreadIdle: o.idleMillis(),
	}
	if o.AttachWQ != nil {
		p.WqFd = uint32(o.AttachWQ.FD())
	}
	r := &Ring{setup: flags, registered: -1, waitArg: new(waitArg)}
	err = r.open(&o, p)
	if err == nil && o.Restrict != nil {
		err = r.restrict(&o)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// open sets the ring up and maps it. After an error the caller closes what was opened.
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
		r.enterFlags, r.registered, r.thread = abi.IORING_ENTER_REGISTERED_RING, fd, sys.ThreadID()
	} else {
		r.fd = sys.NewFD(fd)
		r.list(true)
	}
	if r.features&FeatNoIOWait != 0 && o.NoIOWait {
		r.enterFlags |= abi.IORING_ENTER_NO_IOWAIT
	}
	if r.setup&SetupNoMmap == 0 {
		mem, err := r.mapRings(p)
		if err != nil {
			return err
		}
		r.mem = mem
	}
	r.bind(p)
	r.sq.base = r.sq.seen
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
	n := int(sys.Size[SQE]())
	if r.setup&SetupSQE128 != 0 {
		n *= 2
	}
	return n
}

func (r *Ring) cqeSize() int {
	n := int(sys.Size[CQE]())
	if r.setup&SetupCQE32 != 0 {
		n *= 2
	}
	return n
}

// mapRings maps the queues of a ring with a descriptor: rings first, then SQEs.
func (r *Ring) mapRings(p *abi.Params) ([]*sys.Region, error) {
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
	var mem []*sys.Region
	for _, m := range maps {
		region, err := sys.MapRing(r.fd.Int(), m.off, m.size)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("uring: map ring: %w", err), unmap(mem))
		}
		mem = append(mem, region)
	}
	return mem, nil
}

func unmap(mem []*sys.Region) error {
	var errs []error
	for _, m := range mem {
		errs = append(errs, m.Unmap())
	}
	return errors.Join(errs...)
}

// provideMemory sets up NO_MMAP: kernels before 6.10 want each area to be
// physically contiguous, so one larger than a page needs huge pages there.
// Sizes above the limits are for the kernel to judge: memory for the limit is
// enough, as it refuses or clamps them.
func (r *Ring) provideMemory(o *Options, p *abi.Params) error {
	sqEntries := ceilPow2(min(o.sqEntries(), maxSQEntries))
	cqEntries := ceilPow2(min(o.CQEntries, maxCQEntries))
	if o.CQEntries == 0 {
		cqEntries = 2 * sqEntries
	}
	rings := ringHeader() + int(cqEntries)*r.cqeSize() + int(sqEntries)*4
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

// ringHeader returns how much of a ring is neither completions nor the index
// array: the kernel's struct io_rings, up to five cache lines, which CQE32
// doubles, and the line that aligning the array may cost.
func ringHeader() int { return 11 * cacheLine() }

// cacheLine returns what the kernel aligns to (SMP_CACHE_BYTES).
func cacheLine() int {
	switch runtime.GOARCH {
	case "ppc64", "ppc64le":
		return 128
	case "s390x":
		return 256
	}
	return 64
}

// bind turns the kernel's offsets into typed views of the mapped memory.
func (r *Ring) bind(p *abi.Params) {
	rings, sqes := r.mem[0], r.mem[1]
	cqMem := rings
	if len(r.mem) > 2 {
		cqMem = r.mem[2]
	}
	r.cqesOff, r.arrayOff = p.CqOff.Cqes, p.SqOff.Array
	s := &r.sq
	s.head, s.tail = rings.Word(p.SqOff.Head), rings.Word(p.SqOff.Tail)
	s.flags = rings.Word(p.SqOff.Flags)
	s.entries, s.mask = p.SqEntries, p.SqEntries-1
	if r.setup&SetupSQE128 != 0 {
		s.shift = 1
	}
	s.sqes = sys.Slice[SQE](sqes, 0, int(p.SqEntries)<<s.shift)
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
	c.cqes = sys.Slice[CQE](cqMem, p.CqOff.Cqes, int(p.CqEntries)<<c.shift)
	c.plain = nil
	if c.shift == 0 && !c.mixed {
		c.plain = sys.Slice[CQE](cqMem, p.CqOff.Cqes, int(p.CqEntries))
	}
	c.next = c.head.Load()
}
