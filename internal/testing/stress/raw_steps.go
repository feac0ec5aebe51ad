// SPDX-License-Identifier: MIT

package stress

import (
	"sync"

	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// rawVerbs are steps that use a file through the engine directly.
var rawVerbs = []*verb{
	{"pread", []string{"at", "n", "way", "after"}, 8, makeRaw, (*worker).preadStep},
	{"pwrite", []string{"at", "n", "way", "after"}, 6, makeRaw, (*worker).pwriteStep},
	{"preads", []string{"at", "n", "count"}, 3, func(g *generator) []int {
		return []int{g.at(), 1 + g.IntN(2), 1 + g.IntN(24)}
	}, (*worker).preadsStep},
}

func makeRaw(g *generator) []int {
	return []int{g.at(), g.blocks(), g.IntN(ways), g.after()}
}

// transfer is a read or write of the engine's file.
type transfer struct {
	op       reactor.Op
	p        []byte
	first, n int
	stamp    uint64 // of a write
	begin    uint64 // of a read
}

// preadOf begins a read.
func (a *worker) preadOf(at, n int) *transfer {
	t := a.transferOf(at, n)
	t.begin = a.p.raw.BeginRead()
	t.op.SQE.Read(uring.Fd(a.p.w.Raw()), t.p, int64(t.first)*Block)
	return t
}

// pwriteOf begins a write.
func (a *worker) pwriteOf(at, n int) *transfer {
	t := a.transferOf(at, n)
	t.stamp = a.p.raw.BeginWrite(t.first, t.n)
	a.p.raw.Fill(t.p, t.stamp, t.first)
	t.op.SQE.Write(uring.Fd(a.p.w.Raw()), t.p, int64(t.first)*Block)
	return t
}

func (a *worker) transferOf(at, n int) *transfer {
	t := &transfer{}
	t.first, t.n = a.p.raw.Range(at, min(n, mostBlocks))
	t.p = a.buffer(t.n * Block)
	t.op.Buf, t.op.Bytes = t.p, len(t.p)
	return t
}

// end records the result of a transfer in the model, and recycles the buffer.
func (a *worker) end(t *transfer, res reactor.Result, ok bool) {
	got := 0
	if ok {
		got = int(res.Res)
		if got == 0 || got > len(t.p) {
			a.problem("%d bytes instead of %d", got, len(t.p))
			got = 0
		}
	}
	switch {
	case t.stamp == 0:
		if err := a.p.raw.EndRead(t.begin, t.first, t.p[:got]); err != nil {
			a.problem("the engine's file: %v", err)
		}
	case ok:
		sure := got / Block
		a.p.raw.EndWrite(t.stamp, t.first, t.n, sure, min(t.n-sure, 1))
	case !taken(res.Cause):
		a.p.raw.EndWrite(t.stamp, t.first, t.n, 0, t.n)
	}
	a.let(t.p, res.Cause)
}

func (a *worker) preadStep(x []int) {
	t := a.preadOf(x[0], x[1])
	res, ok := a.perform(&t.op, x[2], x[3])
	a.end(t, res, ok)
}

func (a *worker) pwriteStep(x []int) {
	t := a.pwriteOf(x[0], x[1])
	res, ok := a.perform(&t.op, x[2], x[3])
	a.end(t, res, ok)
}

// preadsStep reads several ranges at the same time.
func (a *worker) preadsStep(x []int) {
	all, results := make([]*transfer, x[2]), make([]reactor.Result, x[2])
	for i := range all {
		all[i] = a.preadOf(x[0]+7*i, x[1])
	}
	var ended sync.WaitGroup
	for i, t := range all {
		ended.Add(1)
		if _, err := a.enqueue(&t.op, func(res reactor.Result) { results[i] = res; ended.Done() }); err != nil {
			results[i] = reactor.Result{Cause: err}
			ended.Done()
		}
	}
	ended.Wait()
	for i, t := range all {
		a.end(t, results[i], a.ended(results[i], wayPlain))
	}
	a.done(x[2])
}
