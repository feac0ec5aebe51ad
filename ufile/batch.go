// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// Range is one read or write of a [Batch]: a part of a file and the memory for it.
type Range struct {
	File *File
	Off  int64
	// Buf is read into or written from. It belongs to the batch until the call
	// returns.
	Buf []byte

	// N and Err are the result. N is the number of bytes that were read or written. Err
	// is not nil if N is less than len(Buf); it is io.EOF at the end of the file. Unlike
	// WriteAt, a write that fails, for example because the disk is full, counts the bytes
	// that it wrote before.
	N   int
	Err error
}

// BatchOptions configure a [Batch]. The zero value works.
type BatchOptions struct {
	// Depth is the largest number of ranges in flight. 0 means 128, and the maximum is
	// 4096. It may be smaller where memory is short.
	Depth int
	// Buffers is the number of buffers that [Batch.Buffer] returns, and BufferSize their
	// size in bytes. They are registered with the ring, so that the kernel need not pin
	// their pages for each operation. Registered memory counts against RLIMIT_MEMLOCK.
	// Where that is low, fewer buffers are registered, or none; the others are ordinary
	// memory and work as well.
	Buffers, BufferSize int
}

// Batch reads or writes many ranges, of one file or of several, from one goroutine. With
// O_DIRECT or a cold cache up to BatchOptions.Depth of them are in flight together, and
// one system call submits them and waits for them. A Batch has a separate ring. Its
// methods may be called concurrently but run one at a time, so use one Batch for each
// goroutine. Where io_uring cannot be used, the Batch makes plain calls on several
// goroutines. Close frees the ring. A Batch that is dropped without Close loses its ring
// when the garbage collector finds it.
//
// If the kernel refuses the ring in the middle of a call, because a policy has changed,
// the call waits up to ten seconds for the ranges in flight. A range that has not ended
// by then has an error. Its memory must not be used again, because the kernel may still
// access it. The Batch keeps that memory from the garbage collector.
//
// With O_DIRECT a range to be read may have any offset, length and memory: if it is not
// aligned, it is read into aligned memory of the batch and copied. A range to be written
// needs the alignment that the device requires, as for [File.WriteAt]; see [DirectAlign].
type Batch struct {
	mu     sync.Mutex
	sys    *System
	ring   *uring.Ring // nil without io_uring
	depth  int
	memory []byte // of the buffers
	size   int    // of each
	fixed  int    // how many of them are registered
	closed bool
	drop   runtime.Cleanup // closes the ring of a Batch that is dropped without Close

	parts   []part
	free    []int32 // indices of parts that are not in flight
	reaped  []uring.CQE
	copiers workers // read cached ranges, and all ranges where there is no ring
	calls   workers // for ranges of files that must not be read by a ring
	called  []int   // the indices of these ranges, in order
	looked  bool    // the cached parts of the ranges have been read
	broken  error   // why the ring can no longer be entered
}

// mostRetries bounds how often a transfer is repeated after ECANCELED. The kernel
// cancels the operations of a thread that exits, but a file may also return the
// error itself.
const mostRetries = 64

// bounceKept is how much aligned memory a part keeps for the next range.
const bounceKept = 16 << 10

// NewBatch returns a batch for files of the default system.
func NewBatch(o BatchOptions) (*Batch, error) { return defaultSystem().NewBatch(o) }

// NewBatch returns a batch. It fails only with ModeRing, where a ring cannot be
// opened.
func (s *System) NewBatch(o BatchOptions) (*Batch, error) {
	if o.Depth <= 0 {
		o.Depth = 128
	}
	b := &Batch{sys: s, depth: min(o.Depth, 4096), size: o.BufferSize}
	if o.Buffers > 0 && o.BufferSize > 0 {
		b.memory = AlignedBuffer(o.Buffers * o.BufferSize)
	}
	if !s.plain.Load() {
		if err := b.open(o.Buffers); err != nil && s.opts.Mode == ModeRing {
			return nil, err
		}
	}
	return b, nil
}

// open opens the ring, or a smaller one where memory is short.
func (b *Batch) open(buffers int) error {
	o := uring.Options{Entries: uint32(b.depth), Clamp: true, NoIOWait: true,
		// Completions are processed by the wait, so that nothing need
		// interrupt the thread before.
		CoopTaskrun: features.HaveSetup(uring.SetupCoopTaskrun) == nil}
	if b.sys.opts.Restrict {
		o.Restrict = &uring.Restrictions{
			Ops:         []uring.Op{uring.OpRead, uring.OpReadFixed, uring.OpWrite, uring.OpWriteFixed},
			RegisterOps: []uring.RegisterOp{uring.OpRegisterBuffers},
			// For files whose entries a worker thread executes.
			FlagsAllowed: uring.SQEAsync,
		}
	}
	ring, err := ringloop.Open(o, 4)
	if err != nil {
		return err
	}
	b.ring = ring
	b.drop = runtime.AddCleanup(b, func(r *uring.Ring) {
		go r.Close() // nothing is in flight, because a call keeps b reachable
	}, ring)
	b.depth = min(b.depth, ring.SQSpace())
	b.parts = make([]part, b.depth)
	b.free = make([]int32, 0, b.depth)
	b.reaped = make([]uring.CQE, b.depth)
	if b.memory != nil {
		b.register(buffers)
	}
	return nil
}

// register registers the buffers. While the memlock limit does not allow that, it tries
// half as many.
func (b *Batch) register(buffers int) {
	bufs := make([][]byte, buffers)
	for i := range bufs {
		bufs[i] = b.Buffer(i)
	}
	for n := buffers; n > 0; n /= 2 {
		err := b.ring.RegisterBuffers(bufs[:n])
		if err == nil {
			b.fixed = n
		}
		if !errors.Is(err, syscall.ENOMEM) {
			return
		}
	}
}

// Registered returns how many of the buffers, counted from the first, are registered. These are
// fewer than requested if RLIMIT_MEMLOCK is low, and 0 without io_uring.
func (b *Batch) Registered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fixed
}

// Buffer returns buffer i, counted from 0, of those that BatchOptions requested. It belongs to
// the caller until Close, except while a call uses it.
func (b *Batch) Buffer(i int) []byte {
	return b.memory[i*b.size : (i+1)*b.size : (i+1)*b.size]
}

// Close frees the ring. It waits for a call in progress. Later calls return os.ErrClosed.
func (b *Batch) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return os.ErrClosed
	}
	b.closed = true
	if b.ring == nil {
		return nil
	}
	b.drop.Stop()
	return b.ring.Close()
}

// Read reads all ranges and sets N and Err of each. It returns the first Err in the order
// of the slice, which may be io.EOF.
func (b *Batch) Read(ranges []Range) error { return b.run(ranges, false) }

// Write writes all ranges, in no particular order, and sets N and Err of each. It returns
// the first Err in the order of the slice.
func (b *Batch) Write(ranges []Range) error { return b.run(ranges, true) }

// run reads or writes the ranges through the ring or, without one, by goroutines, and returns the
// first error in the order of the ranges.
func (b *Batch) run(ranges []Range, write bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range ranges {
		ranges[i].N, ranges[i].Err = 0, nil
	}
	switch {
	case b.closed:
		return os.ErrClosed
	case b.ring == nil:
		b.copiers.run(ranges, all(write), 8*runtime.GOMAXPROCS(0))
	default:
		b.startCalls(ranges, write)
		b.ringRanges(ranges, write)
		b.calls.finish()
	}
	for i := range ranges {
		if err := ranges[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// startCalls starts plain calls for the ranges of files that must not go through
// the ring, as many at a time as the ring would have in flight.
func (b *Batch) startCalls(ranges []Range, write bool) {
	b.called = b.called[:0]
	for i := range ranges {
		if ranges[i].byCalls(write) {
			b.called = append(b.called, i)
		}
	}
	if len(b.called) == 0 {
		return
	}
	b.calls.only = b.called
	b.calls.start(ranges, all(write), min(len(b.called), b.depth))
}

// byCalls reports whether a range is transferred by plain calls on separate goroutines.
func (r *Range) byCalls(write bool) bool {
	f := r.File
	switch {
	case f == nil || !f.accelerated() || r.Off < 0 || write && f.appends || len(r.Buf) == 0:
		return false
	case f.ringable():
		return false
	}
	return !write || f.direct || f.polled.Load() || f.sys.opts.Mode == ModeRing // others go to the page cache
}

// viaRing reports whether a range goes through the ring. It reads cached data
// of buffered files itself, and makes buffered writes by plain calls, because file
// systems would pass them to worker threads.
func (b *Batch) viaRing(r *Range, write bool) bool {
	f := r.File
	switch {
	case f == nil || !f.accelerated() || f.appends && write || r.Off < 0:
		r.plain(write)
		return false
	case !f.direct && write && b.sys.opts.Mode == ModeAuto:
		r.plain(write)
		return false
	case !f.lock.Acquire():
		r.plain(write) // returns that it is closed
		return false
	case !f.mayCall(directionOf(write)):
		f.lock.Release()
		r.plain(write) // returns why not
		return false
	case !f.direct && !write && !b.looked && f.askCache():
		r.fromCache()
	}
	if r.N < len(r.Buf) {
		return true
	}
	f.lock.Release()
	return false
}

// ringRanges keeps up to depth ranges in flight until all are done.
func (b *Batch) ringRanges(ranges []Range, write bool) {
	b.looked = false
	if n := runtime.GOMAXPROCS(0); !write && n > 1 && b.sys.opts.Mode == ModeAuto && worthSharing(ranges) {
		b.copiers.run(ranges, readCache, n)
		b.looked = true
	}
	b.free = b.free[:0]
	for i := range b.parts {
		b.free = append(b.free, int32(len(b.parts)-1-i))
	}
	next, called := 0, b.called
	for b.ring != nil && (next < len(ranges) || len(b.free) < len(b.parts)) {
		for next < len(ranges) && len(b.free) > 0 && b.ring.SQSpace() > 0 {
			r := &ranges[next]
			next++
			if len(called) > 0 && called[0] == next-1 {
				called = called[1:]
			} else if b.viaRing(r, write) {
				b.start(r, write)
			}
		}
		if inFlight := len(b.parts) - len(b.free); inFlight > 0 {
			b.wait(next < len(ranges), inFlight, write)
		}
	}
	for ; next < len(ranges); next++ { // the ring has failed
		if len(called) > 0 && called[0] == next {
			called = called[1:]
		} else {
			ranges[next].plain(write)
		}
	}
	for i := range b.parts {
		b.parts[i].reset(nil)
	}
}

// start enters a range.
func (b *Batch) start(r *Range, write bool) {
	i := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	b.parts[i].reset(r)
	b.enter(i, write)
}

// enter fills the entry of a part.
func (b *Batch) enter(i int32, write bool) {
	p := &b.parts[i]
	r := p.r
	buf, off := r.Buf[r.N:], r.Off+int64(r.N)
	if r.File.direct && !write && !aligned(buf, off) {
		buf, off = p.useBounce(buf, off)
	}
	e := b.ring.SQE()
	index, fixed := b.registered(buf)
	switch fd := uring.Fd(r.File.fd); {
	case write && fixed:
		e.WriteFixed(fd, buf, off, index)
	case write:
		e.Write(fd, buf, off)
	case fixed:
		e.ReadFixed(fd, buf, off, index)
	default:
		e.Read(fd, buf, off)
	}
	if p.async {
		e.SetFlags(uring.SQEAsync)
	}
	r.File.submitAs(e)
	e.SetUserData(uint64(i))
	r.File.ringed.Add(1)
}

// registered returns the index of the registered buffer that holds buf, if any.
func (b *Batch) registered(buf []byte) (uint16, bool) {
	if b.fixed == 0 || len(buf) == 0 {
		return 0, false
	}
	off, ok := sys.Within(buf, b.memory[:b.fixed*b.size])
	if !ok || off/b.size != (off+len(buf)-1)/b.size {
		return 0, false
	}
	return uint16(off / b.size), true
}

// wait submits the filled entries and waits for all ranges in flight, or for a
// quarter of them when more are to be started.
func (b *Batch) wait(more bool, inFlight int, write bool) {
	count := inFlight
	if more {
		count = max(inFlight/4, 1)
	}
	if _, err := b.ring.SubmitAndWait(count); err != nil && !ringloop.Temporary(err) {
		b.fail(err, write)
		return
	}
	for _, c := range b.reaped[:b.ring.Reap(b.reaped)] {
		b.finish(int32(c.UserData), c, write)
	}
}

// failedWait bounds how long a batch waits for the operations of a failed ring.
const failedWait = 10 * time.Second

// reapFailed waits for the operations in flight of a ring that cannot be entered
// any more. They still complete, and until then the kernel may access their
// memory. Entries that the kernel has not taken are never executed.
func (b *Batch) reapFailed(write bool) {
	end, pause := time.Now().Add(failedWait), 20*time.Microsecond
	for len(b.parts)-len(b.free) > b.ring.Pending() && time.Now().Before(end) {
		n := b.ring.Reap(b.reaped)
		for _, c := range b.reaped[:n] {
			b.finish(int32(c.UserData), c, write)
		}
		if n == 0 {
			time.Sleep(pause)
			pause = min(2*pause, 10*time.Millisecond)
		}
	}
}

// lostRange is the memory of a range that the kernel may still access.
type lostRange struct{ buf, bounce []byte }

// fail stops using a ring that can no longer be entered. Ranges that have not
// completed end with the error. Later calls of the batch use plain system calls.
func (b *Batch) fail(err error, write bool) {
	b.broken = err
	b.reapFailed(write)
	op := directionOf(write).String()
	busy := make([]bool, len(b.parts))
	for i := range busy {
		busy[i] = true
	}
	for _, i := range b.free {
		busy[i] = false
	}
	kept := new([]lostRange)
	for i := range b.parts {
		if !busy[i] {
			continue
		}
		p := &b.parts[i]
		*kept = append(*kept, lostRange{p.r.Buf, p.bounce})
		p.r.Err = p.r.File.pathError(op, err)
		p.r.File.lock.Release()
		b.free = append(b.free, int32(i))
	}
	if len(*kept) > 0 {
		ringloop.Leak(kept)
	}
	b.drop.Stop()
	_ = b.ring.Close()
	b.ring, b.parts = nil, nil
	b.free = nil
}

// finish processes the completion of a part. A short transfer is continued.
func (b *Batch) finish(i int32, c uring.CQE, write bool) {
	p := &b.parts[i]
	r := p.r
	op := directionOf(write).String()
	again := false
	switch errno := c.Errno(); {
	case errno == syscall.EINTR:
		again = true
	case errno == syscall.ECANCELED && p.retries < mostRetries:
		p.retries++
		again = true
	case errno == syscall.ECANCELED && b.sys.opts.Mode == ModeAuto: // a plain call needs no worker thread
		r.plain(write)
	case errno == syscall.EAGAIN && !p.async:
		p.async, again = true, true
	case errno != 0:
		r.Err = r.File.pathError(op, errno)
	default:
		n := p.take(int(c.Res))
		switch {
		case n == 0 && write:
			r.Err = r.File.pathError(op, io.ErrUnexpectedEOF)
		case n == 0:
			r.Err = io.EOF
		default:
			again = r.N < len(r.Buf)
		}
	}
	switch {
	case again && b.broken == nil:
		b.enter(i, write)
		return
	case again:
		r.Err = r.File.pathError(op, b.broken)
	}
	r.File.lock.Release()
	b.free = append(b.free, i)
}
