// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/uring"
)

// BufferGroupOptions describe the buffers of a group.
type BufferGroupOptions struct {
	// Buffers is how many buffers each loop of the reactor has, rounded up to
	// a power of two; 0 means 256, the most is 32768. Where RLIMIT_MEMLOCK is
	// low there may be fewer.
	Buffers int
	// BufferSize is the length of each in bytes; 0 means 4096.
	BufferSize int
	// Incremental lets the kernel put several pieces of data into one buffer,
	// so that small messages do not need a buffer each. It is for sockets and
	// pipes. Kernels before 6.12 use a buffer for each piece all the same.
	Incremental bool
}

const (
	fewestBuffers = 8 // below that a group is refused
	mostBuffers   = 1 << 15
)

func (o BufferGroupOptions) withDefaults() (BufferGroupOptions, error) {
	if o.Buffers <= 0 {
		o.Buffers = 256
	}
	if o.BufferSize <= 0 {
		o.BufferSize = 4096
	}
	if o.Buffers > mostBuffers {
		return o, fmt.Errorf("reactor: a group of %d buffers: at most %d are possible", o.Buffers, mostBuffers)
	}
	o.Buffers = 1 << bits.Len(uint(o.Buffers-1))
	return o, nil
}

// BufferGroup is a stock of buffers on each loop of a reactor, from which the
// kernel takes one when data for a stream has arrived: streams that wait own no
// buffer. All methods may be called concurrently. (5.19; receiving in streams
// 6.0, reading 6.7)
//
// The memory is bounded: loops times buffers times size. It is Go's, so that a
// slice of it is never unmapped.
type BufferGroup struct {
	r       *Reactor
	id      uint16
	stores  []*store     // by the number of the loop
	streams atomic.Int64 // in flight; negative when closed
}

// closedGroup is far below any number of streams.
const closedGroup = -1 << 40

// errGroupBusy is the answer of Close.
var errGroupBusy = errors.New("reactor: streams are using the buffer group: cancel them and wait for their last events")

// NewBufferGroup registers buffers on every loop. It must not be called by a
// callback of a pinned loop, which panics.
//
// Errors: ErrClosed; errors.ErrUnsupported where the kernel has no buffer rings;
// ENOMEM when not even a few buffers may be registered.
func (r *Reactor) NewBufferGroup(o BufferGroupOptions) (*BufferGroup, error) {
	r.mayRegister()
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	id, ok := r.groupIDs.take()
	if !ok {
		return nil, errors.New("reactor: too many buffer groups")
	}
	g := &BufferGroup{r: r, id: id}
	for _, l := range r.loops {
		s, err := l.openStore(g, o)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		g.stores = append(g.stores, s)
	}
	return g, nil
}

// Stream starts a multishot operation that takes its buffers from the group:
// RecvMultishot, RecvMultishotLimit, RecvMsgMultishot or ReadMultishot, the
// first also with uring.NetBundle. The group that the entry names is replaced.
// fn is called with each event, in order, until one for which [Result.More] is
// false; it may be nil. Like Queue it never waits, and answers ErrFull. Another
// entry is an error.
//
// What arrived is in [Event.Data] and goes back to the group when fn returns,
// unless it calls [Event.Keep]. A stream that finds the group empty rests until
// a buffer is back, which [Stats] counts; nothing is lost meanwhile, as the
// kernel keeps the data, or the sender waits. A stream that the kernel ended
// with data (the completion queue had overflowed), or because a thread exited,
// goes on too: More stays true.
//
// The end is Res 0, end of file, which for RecvMsgMultishot is a message whose
// payload is empty; ECANCELED after [Reactor.Cancel]; or another errno.
func (g *BufferGroup) Stream(op *Op, fn func(*Event)) (ID, error) {
	if !streams(&op.SQE) {
		return ID{}, errNoStream
	}
	if fn == nil {
		fn = func(*Event) {}
	}
	l := g.r.route(op)
	if !g.enter() {
		return ID{}, ErrClosed
	}
	s, err := l.tryAcquire()
	if err != nil {
		g.left()
		return ID{}, err
	}
	v := &s.Value
	v.event, v.stream, v.detached = fn, true, true
	if v.limit = int64(op.SQE.Raw().FileIndex); v.limit == 0 {
		v.limit = noLimit
	}
	v.store = g.stores[l.number] // leaves the group when the slot is released
	id := ID{l, s.ID()}
	l.calls.start(l)
	if err = l.adopt(s, op); err == nil {
		v.op.SQE.SetBufferGroup(g.id)
		err = l.startOne(s)
	}
	if err != nil {
		l.release(s)
		return ID{}, err
	}
	return id, nil
}

// Close takes the buffers away from the kernel. It answers an error and does
// nothing while streams are in flight; a stream's last event comes when it is
// not any more. Chunks that are kept stay what they are. Close must not be
// called by a callback of a pinned loop, which panics. Closing the reactor
// closes its groups too.
func (g *BufferGroup) Close() error {
	g.r.mayRegister()
	if n := g.streams.Load(); n < 0 {
		return nil
	}
	if !g.streams.CompareAndSwap(0, closedGroup) {
		return errGroupBusy
	}
	var errs []error
	for _, s := range g.stores {
		errs = append(errs, s.close())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	g.r.groupIDs.put(g.id)
	return nil
}

// enter counts a stream; false says that the group is closed.
func (g *BufferGroup) enter() bool {
	for {
		n := g.streams.Load()
		if n < 0 {
			return false
		}
		if g.streams.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// left ends what enter began.
func (g *BufferGroup) left() { g.streams.Add(-1) }

// groupIDs hands out the numbers by which entries name groups.
type groupIDs struct {
	mu   sync.Mutex
	used int // numbers that have been handed out, from firstGroup on
	free []uint16
}

func (d *groupIDs) take() (uint16, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.free); n > 0 {
		id := d.free[n-1]
		d.free = d.free[:n-1]
		return id, true
	}
	if d.used == 1<<16-firstGroup {
		return 0, false
	}
	d.used++
	return uint16(firstGroup + d.used - 1), true
}

// firstGroup is the first number that may be used again. Of smaller ones Linux
// 6.1 remembers, across two registrations, how many buffers it has taken: it
// would take buffers of the second group that are in use.
// TestGroupDeliversEverything fails there with 0.
const firstGroup = 64

func (d *groupIDs) put(id uint16) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, id)
}

var errNoStream = errors.New("reactor: a stream into provided buffers starts with RecvMultishot, RecvMultishotLimit, RecvMsgMultishot or ReadMultishot")

// recvMultishot is how an entry says that it receives again and again.
var recvMultishot = new(uring.SQE).RecvMultishot(uring.Fd(0), 0, 0).Raw().Ioprio

// streams reports whether an entry goes on after its first completion.
func streams(e *uring.SQE) bool {
	switch uring.Op(e.Raw().Opcode) {
	case uring.OpReadMultishot:
		return true
	case uring.OpRecv, uring.OpRecvMsg:
		return e.Raw().Ioprio&recvMultishot != 0
	}
	return false
}
