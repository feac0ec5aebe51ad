// SPDX-License-Identifier: MIT

package reactor

import (
	"encoding/binary"
	"slices"
	"syscall"

	"github.com/ringside-io/ringside/uring"
)

// Event is one event of a stream that takes its buffers from a group. It is
// valid until the callback returns.
type Event struct {
	// Result is the kernel's answer; Res is the number of bytes in Data, or a
	// negative errno.
	Result
	// Data is what arrived, in a buffer of the group. It may be read and
	// written to until the callback returns; see Keep. Nil without a buffer.
	Data []byte

	chunk Chunk
}

// Keep takes the data out of the event, so that it outlives the callback. The
// buffer goes back to the group with [Chunk.Release]: one that never does is
// missing from the group for ever. The second call returns the zero Chunk.
func (e *Event) Keep() Chunk {
	c := e.chunk
	e.chunk = Chunk{}
	return c
}

// Chunk is data in a buffer of a group, which the holder may read and write to
// until Release. The zero Chunk has no data.
type Chunk struct {
	Data []byte

	store *store
	id    uint16
	use   uint32
}

// Release gives the buffer back to its group. It may be called by any goroutine
// and by callbacks, and never waits for an operation. The second call on the
// same Chunk does nothing; releasing a copy as well panics, as far as that can
// be told. After the group or the reactor was closed it has no effect, and Data
// stays valid as long as it is reachable.
func (c *Chunk) Release() {
	s := c.store
	if s == nil {
		return
	}
	id, use := c.id, c.use
	*c = Chunk{}
	if s.giveBack(id, use) {
		s.wake()
	}
}

// deliver calls the callback of an event and gives the buffer back.
func (c *calls) deliver(e *call) {
	ev := &c.current
	*ev = Event{Result: e.res, Data: e.chunk.Data, chunk: e.chunk}
	e.event(ev)
	if s := ev.chunk.store; s != nil && s.giveBack(ev.chunk.id, ev.chunk.use) && !slices.Contains(c.dry, s) {
		c.dry = append(c.dry, s)
	}
	*ev = Event{}
}

// refill starts streams again that waited for the buffers that deliver gave
// back: once for all of them.
func (c *calls) refill() {
	for _, s := range c.dry {
		s.wake()
	}
	clear(c.dry)
	c.dry = c.dry[:0]
}

// deliverEvent takes a completion to its stream. The caller holds reaping.
func (l *loop) deliverEvent(s *slot, c uring.CQE) {
	v := &s.Value
	chunks := v.store.take(c, v.bundle())
	v.count(c)
	more := c.Has(uring.CQEMore)
	goesOn := more || v.goesOn(c, chunks)
	l.addEvents(v, c, chunks, goesOn)
	if goesOn {
		v.retries = 0 // they are bounded in a row
	}
	switch {
	case more:
		return
	case goesOn:
		if l.again(s) {
			return
		}
	case len(chunks) > 0:
		v.event = nil // has heard of the end
		v.res = Result{Res: c.Res, Flags: c.Flags}
	default:
		v.res = Result{Res: plainErrno(c.Res), Flags: c.Flags}
		if c.Errno() == syscall.ENOBUFS && l.rest(s) || interrupted(v.res.Res) && l.stopped(s) {
			return
		}
	}
	l.end(s, v.res)
}

// addEvents queues a call for each piece of data, and for an event without any
// that is not the end.
func (l *loop) addEvents(v *entry, c uring.CQE, chunks []Chunk, goesOn bool) {
	res := Result{Res: c.Res, Flags: c.Flags}
	if goesOn {
		l.stats.events.Add(1)
		res.Flags |= uring.CQEMore
	}
	if goesOn && len(chunks) == 0 {
		l.calls.addEvent(v.event, res, Chunk{})
	}
	for _, chunk := range chunks {
		if len(chunks) > 1 {
			res.Res = int32(len(chunk.Data))
		}
		l.calls.addEvent(v.event, res, chunk)
	}
}

// bundle reports whether a completion of the stream may cover several buffers.
func (v *entry) bundle() bool {
	e := v.op.SQE.Raw()
	return e.Opcode == uint8(uring.OpRecv) && e.Ioprio&uint16(uring.NetBundle) != 0
}

// noLimit is the limit of a stream without one.
const noLimit = -1

// count counts down what a stream with a limit may still bring: starting again,
// it must not begin from the beginning.
func (v *entry) count(c uring.CQE) {
	if v.limit > 0 && c.Res > 0 {
		v.limit = max(v.limit-int64(c.Res), 0)
		v.op.SQE.Raw().FileIndex = uint32(v.limit)
	}
}

// goesOn reports whether a stream that the kernel has ended with data is to start
// again.
func (v *entry) goesOn(c uring.CQE, chunks []Chunk) bool {
	if c.Res <= 0 {
		return false
	}
	switch uring.Op(v.op.SQE.Raw().Opcode) {
	case uring.OpReadMultishot:
		return true
	case uring.OpRecv:
		return v.limit != 0
	case uring.OpRecvMsg:
		// An empty payload is the end of a stream socket.
		const payloadLen = 8
		return len(chunks) > 0 && len(chunks[0].Data) >= payloadLen+4 &&
			binary.NativeEndian.Uint32(chunks[0].Data[payloadLen:]) > 0
	}
	return false
}

// again starts a stream again that the kernel has ended with data. False says that it
// was cancelled meanwhile. The caller holds reaping.
func (l *loop) again(s *slot) bool {
	v := &s.Value
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endedOnPurpose(v, s.ID()) {
		return false
	}
	l.leaveChore(chore{id: s.ID()})
	return true
}
