// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringside-io/ringside/internal/testing/simring"
	"github.com/ringside-io/ringside/uring"
)

// simRing makes a simulated ring that of a loop.
type simRing struct{ *simring.Ring }

func (r simRing) provide(o uring.BufRingOptions) (bufRing, error) {
	b, err := r.NewBufRing(o)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// openGroup makes the group of a simulation, unless bugs would keep it waiting
// or a ring fails at once.
func (w *world) openGroup() {
	if w.bugs != (simring.Bugs{}) {
		return
	}
	var err error
	if w.group, err = w.r.NewBufferGroup(w.provided); err != nil && !w.k.Failed() {
		w.errorf("group: %v", err)
	}
}

// closeGroup closes it when no stream is left.
func (w *world) closeGroup() {
	if w.group == nil {
		return
	}
	if err := w.group.Close(); err != nil && !w.k.Failed() {
		w.errorf("close a group: %v", err)
	}
}

// pipeReader reads a pipe of its actor through the group.
type pipeReader struct {
	*actor
	rng  *rand.Rand
	pipe int
	next uint64 // the byte that comes next
	all  uint64 // that will be fed
	got  chan struct{}
	*queuedOp
}

// groupStream reads some bytes of a pipe of its own through the group: all must
// arrive, in order, whatever happens to the stream.
func (a *actor) groupStream() {
	if a.group == nil || a.reading != nil && !a.reading.simOp.over.Load() {
		return
	}
	s := &pipeReader{actor: a, pipe: a.pipe, rng: rand.New(rand.NewPCG(a.rng.Uint64(), 0)), got: make(chan struct{})}
	s.next = a.k.Taken(a.pipe)
	s.all = a.fed + uint64(1+a.rng.IntN(200))
	s.queuedOp = &queuedOp{simOp: a.newOp(), done: make(chan struct{})}
	s.simOp.stream = true
	s.op.SQE.ReadMultishot(uring.Fd(a.pipe), 0)
	s.finish()
	id, err := a.group.Stream(&s.op, func(e *Event) { a.callback(func() { s.event(e) }) })
	if s.id = id; !a.started(s.simOp, err) {
		return
	}
	a.reading = s
	a.mine = append(a.mine, s.queuedOp)
	if a.rng.IntN(4) == 0 {
		a.cancelSome(s.queuedOp) // it may come too early
	}
	for a.fed < s.all {
		n := min(1+a.rng.Uint64N(60), s.all-a.fed)
		a.fed += n
		a.k.Feed(a.pipe, int(n))
		if a.rng.IntN(3) == 0 {
			a.dawdle(a.rng)
		}
	}
	select {
	case <-s.got:
	case <-s.done:
	}
	a.cancel(s.queuedOp)
}

// event checks one event of the stream.
func (s *pipeReader) event(e *Event) {
	if s.simOp.over.Load() {
		s.errorf("tag %d: an event after the end: %+v", s.tag, e.Result)
	}
	for _, b := range e.Data {
		if b != simring.PipeByte(s.next) {
			s.errorf("tag %d: byte %d of the pipe is another", s.tag, s.next)
		}
		s.next++
	}
	if s.next == s.all && len(e.Data) > 0 {
		close(s.got)
	}
	if s.rng.IntN(3) == 0 {
		s.keep(e.Keep())
	}
	if e.More() {
		return
	}
	if !s.k.Failed() && s.next != s.k.Taken(s.pipe) {
		s.errorf("tag %d: %d bytes of %d that the kernel took have arrived: %+v", s.tag, s.next, s.k.Taken(s.pipe), e.Result)
	}
	switch {
	case s.asked.Load() && e.Errno() == syscall.ECANCELED:
	case errors.Is(e.Cause, ErrClosed) && s.closing.Load():
	case s.k.Failed():
	case e.Cause == nil && (e.Errno() == syscall.EAGAIN && s.faults.Again > 0 || e.Errno() == syscall.EIO && s.faults.Broken > 0):
	default:
		s.errorf("tag %d: the stream ended with %+v", s.tag, e.Result)
	}
	s.simOp.over.Store(true)
	close(s.done)
}

// keep holds a chunk for some time, in which nobody may write to it.
func (s *pipeReader) keep(c Chunk) {
	was := string(c.Data)
	rng := rand.New(rand.NewPCG(s.rng.Uint64(), 0))
	s.cancellers.Go(func() {
		s.dawdle(rng)
		if string(c.Data) != was {
			s.errorf("tag %d: a chunk was written to while it was kept", s.tag)
		}
		c.Release()
	})
}

// TestSharedBufferServesAllInTurn has streams share one buffer that somebody
// keeps for long: all go on when it is back, and none is asked about meanwhile.
func TestSharedBufferServesAllInTurn(t *testing.T) {
	overSim(t, Options{}, func(t *testing.T, k *simring.Kernel, r *Reactor) {
		g, err := r.NewBufferGroup(BufferGroupOptions{Buffers: 1, BufferSize: 4})
		if err != nil {
			t.Fatal(err)
		}
		kept := make(chan Chunk, 1)
		var got [3]atomic.Int64
		for i := range got {
			pipe := k.Pipe()
			op := new(Op)
			op.SQE.ReadMultishot(uring.Fd(pipe), 0)
			if _, err := g.Stream(op, func(e *Event) {
				got[i].Add(int64(len(e.Data)))
				if c := e.Keep(); c.Data != nil {
					kept <- c
				}
			}); err != nil {
				t.Fatal(err)
			}
			k.Feed(pipe, 40)
		}
		for range 30 {
			c := <-kept
			synctest.Wait()
			before := r.Stats().Submitted
			time.Sleep(time.Hour) // of the simulation
			if s := r.Stats(); s.Submitted != before {
				t.Fatalf("%d entries were submitted while there was no buffer", s.Submitted-before)
			}
			c.Release()
		}
		synctest.Wait()
		for i := range got {
			if n := got[i].Load(); n != 40 {
				t.Errorf("stream %d got %d bytes", i, n)
			}
		}
	})
}

// TestStarvedStreamsDoNotOutliveTheirCancellation cancels streams for which no
// buffer will ever come back: before the kernel says that there is none, and
// after.
func TestStarvedStreamsDoNotOutliveTheirCancellation(t *testing.T) {
	overSim(t, Options{}, func(t *testing.T, k *simring.Kernel, r *Reactor) {
		g, err := r.NewBufferGroup(BufferGroupOptions{Buffers: 1, BufferSize: 4})
		if err != nil {
			t.Fatal(err)
		}
		var kept Chunk
		ends := make(chan Result, 2)
		for _, after := range []bool{false, true} {
			pipe := k.Pipe()
			op := new(Op)
			op.SQE.ReadMultishot(uring.Fd(pipe), 0)
			id, err := g.Stream(op, func(e *Event) {
				if !e.More() {
					ends <- e.Result
					return
				}
				kept = e.Keep()
			})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !after {
				// As if the cancellation were on its way to the kernel.
				id.loop.mu.Lock()
				id.loop.table.Lookup(id.id).Value.ask(id.id)
				id.loop.mu.Unlock()
			}
			k.Feed(pipe, 8)
			synctest.Wait()
			if after {
				if err := r.Cancel(id); err != nil {
					t.Fatal(err)
				}
			}
			if res := <-ends; res.Errno() != syscall.ECANCELED || res.Cause != nil {
				t.Errorf("after %v: %+v", after, res)
			}
		}
		if string(kept.Data) != string([]byte{simring.PipeByte(0), simring.PipeByte(1), simring.PipeByte(2), simring.PipeByte(3)}) {
			t.Errorf("kept %x", kept.Data)
		}
	})
}

// TestStarvedStreamsEndWhenTheRingFails does not wait for Close.
func TestStarvedStreamsEndWhenTheRingFails(t *testing.T) {
	overSim(t, Options{Logger: slog.New(slog.DiscardHandler)}, func(t *testing.T, k *simring.Kernel, r *Reactor) {
		g, err := r.NewBufferGroup(BufferGroupOptions{Buffers: 1, BufferSize: 4})
		if err != nil {
			t.Fatal(err)
		}
		pipe := k.Pipe()
		end := make(chan Result, 1)
		op := new(Op)
		op.SQE.ReadMultishot(uring.Fd(pipe), 0)
		if _, err := g.Stream(op, func(e *Event) {
			if e.Keep(); !e.More() {
				end <- e.Result
			}
		}); err != nil {
			t.Fatal(err)
		}
		k.Feed(pipe, 8)
		synctest.Wait()
		l := r.loops[0]
		l.mu.Lock()
		l.fail(syscall.EBADF)
		l.mu.Unlock()
		if res := <-end; !errors.Is(res.Cause, ErrFailed) {
			t.Errorf("%+v", res)
		}
	})
}
