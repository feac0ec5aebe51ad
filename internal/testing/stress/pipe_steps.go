// SPDX-License-Identifier: MIT

package stress

import (
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// pipeVerbs are steps with the worker's own pipe, through the engine.
var pipeVerbs = []*verb{
	{"take", []string{"n", "way", "after"}, 6, func(g *generator) []int {
		return []int{g.bytes(), g.IntN(ways), g.after()}
	}, (*worker).takeStep},
	{"dry", []string{"way", "after"}, 3, func(g *generator) []int {
		return []int{pick(g.Rand, wayContext, wayCancel), g.after()}
	}, (*worker).dryStep},
	{"poll", []string{"way"}, 1, func(g *generator) []int {
		return []int{pick(g.Rand, wayPlain, wayQueue)}
	}, (*worker).pollStep},
	{"reopen", nil, 1, func(*generator) []int { return nil }, (*worker).reopenStep},
}

// stream is a pipe with the number of the next byte.
type stream struct {
	Pipe
	next uint64
}

// stream returns a number for the first byte of a new stream.
func (p *runner) stream() uint64 { return p.streams.Add(1) << 24 }

// own returns the worker's pipe.
func (a *worker) own() *stream {
	if a.pipe == nil {
		first := a.p.stream()
		pipe, err := a.p.w.Pipe(first)
		if err != nil {
			a.refused("a pipe", err)
			return nil
		}
		a.pipe = &stream{pipe, first}
	}
	return a.pipe
}

// readOf returns a read of the worker's pipe.
func (a *worker) readOf(n int) (*reactor.Op, []byte) {
	p := a.buffer(min(n, mostBlocks*Block))
	op := &reactor.Op{Buf: p, Bytes: len(p)}
	op.SQE.Read(uring.Fd(a.pipe.FD()), p, 0)
	return op, p
}

// takeStep writes bytes to the pipe and reads all of them in order, even if reads are
// cancelled.
func (a *worker) takeStep(x []int) {
	s := a.own()
	if s == nil {
		return
	}
	if err := s.Feed(x[0]); err != nil {
		a.problem("feed: %v", err)
		return
	}
	way := x[1]
	for left := x[0]; left > 0 && !a.p.stop.Load(); {
		op, p := a.readOf(left)
		res, ok := a.perform(op, way, x[2])
		if ok {
			left -= a.arrived(s, p, int(res.Res))
		}
		way = wayPlain + way%2 // cancelling once is enough
		if a.let(p, res.Cause); a.gone(res.Cause) {
			return
		}
	}
}

// gone drops the pipe if it is unknown which bytes were read from it, and reports
// whether it did.
func (a *worker) gone(err error) bool {
	if !a.p.w.Broken(err) {
		return false
	}
	a.check("close the pipe", a.pipe.Close())
	a.pipe = nil
	return true
}

// arrived checks n bytes of the stream.
func (a *worker) arrived(s *stream, p []byte, n int) int {
	if n <= 0 || n > len(p) {
		a.problem("%d bytes from the pipe, of %d", n, len(p))
		return 0
	}
	if at, wrong := differs(p[:n], s.next); wrong {
		a.problem("byte %d of the pipe is another", at)
	}
	s.next += uint64(n)
	return n
}

// dryStep reads from a pipe that stays empty, until the read is cancelled.
func (a *worker) dryStep(x []int) {
	s := a.own()
	if s == nil {
		return
	}
	op, p := a.readOf(10)
	res, ok := a.perform(op, x[0], x[1])
	if ok {
		a.problem("an empty pipe was read: %+v", res)
	}
	a.let(p, res.Cause)
	a.gone(res.Cause)
}

// pollStep waits until the pipe is readable.
func (a *worker) pollStep(x []int) {
	s := a.own()
	if s == nil {
		return
	}
	a.check("feed", s.Feed(1))
	op := new(reactor.Op)
	op.SQE.PollAdd(uring.Fd(s.FD()), 1)
	res, ok := a.perform(op, x[0], 0)
	if ok && res.Res&1 == 0 {
		a.problem("poll answers %#x", res.Res)
	}
	if a.gone(res.Cause) {
		return
	}
	for got := 0; got == 0 && !a.p.stop.Load(); {
		op, p := a.readOf(1)
		res, ok := a.perform(op, wayPlain, 0)
		if ok {
			got = a.arrived(s, p, int(res.Res))
		}
		if a.let(p, res.Cause); a.gone(res.Cause) {
			return
		}
	}
}

// reopenStep closes the pipe, so that its descriptors are used again.
func (a *worker) reopenStep([]int) {
	if a.pipe != nil {
		a.check("close the pipe", a.pipe.Close())
		a.pipe = nil
	}
	a.own()
	a.done(1)
}
