// SPDX-License-Identifier: MIT

package reactor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/faultsweep"
	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// rig is a reactor for one run of the sweep, with a file and an empty pipe. They are real
// or simulated, as the rings are.
type rig struct {
	*Reactor
	t          *faultsweep.Trial
	content    []byte
	file, pipe uring.FD
	feed       func(n int)
	closed     bool // by the operation
}

// rigged runs do with a rig under faults and checks the rig afterwards.
func rigged(path string, content []byte, sim bool, do func(g *rig)) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		g := &rig{t: t, content: content}
		if sim {
			g.simulate()
		} else {
			defer g.open(path)()
		}
		o := Options{Loops: 1, Entries: 8, InFlight: 16}
		t.Rings(&o)
		var err error
		if g.Reactor, err = New(o); err != nil {
			t.Fatalf("%v", err)
		}
		t.Arm()
		do(g)
		t.Disarm()
		failed := g.loops[0].failure() != nil
		if !failed {
			t.Await("nothing is in flight", func() bool { return g.Stats().InFlight == 0 })
			if res := g.Do(g.read(make([]byte, 64), 64)); !g.closed || !errors.Is(res.Cause, ErrClosed) {
				g.judge("a read afterwards", res, nil)
			}
		}
		if err := g.Close(); err != nil {
			t.Judge("Close", err)
		}
		if res := g.Do(g.read(make([]byte, 1), 0)); !errors.Is(res.Cause, ErrClosed) && !errors.Is(res.Cause, ErrFailed) {
			t.Errorf("after Close: %+v", res)
		}
	}
}

func (g *rig) simulate() {
	k := g.t.Kernel()
	pipe := k.Pipe()
	g.file, g.pipe = uring.Fd(k.File(bytes.Clone(g.content))), uring.Fd(pipe)
	g.feed = func(n int) { k.Feed(pipe, n) }
}

func (g *rig) open(path string) (closeAll func()) {
	f, err := os.Open(path)
	if err != nil {
		g.t.Fatalf("%v", err)
	}
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
		g.t.Fatalf("%v", err)
	}
	g.file, g.pipe = uring.Fd(int(f.Fd())), uring.Fd(p[0])
	g.feed = func(n int) { _, _ = syscall.Write(p[1], make([]byte, n)) }
	return func() {
		_, _, _ = f.Close(), syscall.Close(p[0]), syscall.Close(p[1])
	}
}

// read makes a read of the file.
func (g *rig) read(p []byte, off int64) *Op {
	op := &Op{Buf: p, Bytes: len(p)}
	op.SQE.Read(g.file, p, off)
	return op
}

// wait makes a read of the pipe, which is empty.
func (g *rig) wait() *Op {
	p := make([]byte, 8)
	op := &Op{Buf: p}
	op.SQE.Read(g.pipe, p, 0)
	return op
}

// judge checks the result of an operation: want, or the fault that was injected.
func (g *rig) judge(what string, res Result, want error) bool {
	err := res.Cause
	if err == nil && res.Errno() != 0 {
		err = res.Errno()
	}
	if want != nil && errors.Is(err, want) {
		return true
	}
	if want != nil && err == nil {
		g.t.Errorf("%s: ended with %d, want %v", what, res.Res, want)
		return false
	}
	return g.t.Judge(what, err)
}

// holds checks the data of a read, which may be short.
func (g *rig) holds(what string, p []byte, off int, res Result) {
	if g.judge(what, res, nil) && (res.Res <= 0 || int(res.Res) > len(p) || !bytes.Equal(p[:res.Res], g.content[off:off+int(res.Res)])) {
		g.t.Errorf("%s: %d bytes, or wrong bytes", what, res.Res)
	}
}

// hopeless reports whether a waiting operation may continue until the pipe has data or the
// reactor is closed.
func (g *rig) hopeless() bool {
	c, fired := g.t.Choice()
	return fired && !c.Passing
}

// result waits for the end of an operation that was cancelled.
func (g *rig) result(what string, end <-chan Result, want error) {
	g.t.Await(what+" ends", func() bool { return len(end) > 0 || g.hopeless() })
	if len(end) == 0 {
		g.feed(64)
		g.closed = true
		if err := g.Close(); err != nil {
			g.t.Judge("Close", err)
		}
		<-end // with any result
		return
	}
	g.judge(what, <-end, want)
}

func sweptDo(g *rig) {
	p := make([]byte, 64)
	g.holds("Do", p, 0, g.Do(g.read(p, 0)))
	q := make([]byte, 64)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g.holds("DoContext", q, 64, g.DoContext(ctx, g.read(q, 64)))
}

// sweptContext cancels the context of a read that waits.
func sweptContext(g *rig) {
	cause := errors.New("cut")
	ctx, cancel := context.WithCancelCause(context.Background())
	end := make(chan Result, 1)
	go func() { end <- g.DoContext(ctx, g.wait()) }()
	g.t.Await("it has begun", func() bool { return g.Stats().InFlight > 0 || len(end) > 0 })
	cancel(cause)
	g.result("DoContext", end, cause)
}

// sweptCancel cancels an operation with a callback, which is called once.
func sweptCancel(g *rig) {
	end := make(chan Result, 4)
	id, err := g.Queue(g.wait(), func(res Result) { end <- res })
	if !g.t.Judge("Queue", err) {
		return
	}
	if err := g.Cancel(id); err != nil && !errors.Is(err, ErrNotFound) {
		g.t.Judge("Cancel", err)
	}
	g.result("Queue", end, syscall.ECANCELED)
	if len(end) > 0 {
		g.t.Errorf("a callback was called twice")
	}
}

// sweptPoll polls repeatedly until it is cancelled.
func sweptPoll(g *rig) {
	events, end := make(chan struct{}, 1), make(chan Result, 4)
	op := &Op{}
	op.SQE.PollMultishot(g.pipe, 1)
	id, err := g.Stream(op, func(res Result) {
		if !res.More() {
			end <- res
			return
		}
		select {
		case events <- struct{}{}:
		default:
		}
	})
	if !g.t.Judge("Stream", err) {
		return
	}
	g.feed(8)
	g.t.Await("an event has come", func() bool { return len(events) > 0 || len(end) > 0 || g.hopeless() })
	if err := g.Cancel(id); err != nil && !errors.Is(err, ErrNotFound) {
		g.t.Judge("Cancel", err)
	}
	g.result("Stream", end, syscall.ECANCELED)
}

// sweptOperations are all operations that the sweep runs.
func sweptOperations(path string, content []byte) (ops []faultsweep.Operation) {
	// The results of an operation are the caller's to handle, except interruptions and the
	// exit of a thread, which simulated rings produce.
	choices := func(fails, passes []syscall.Errno, more ...faultsweep.Choice) []faultsweep.Choice {
		cs := append(faultsweep.Fails(fails...), faultsweep.Passes(passes...)...)
		return append(append(cs, faultsweep.Choice{Late: true, Passing: true}), more...)
	}
	short, stale := faultsweep.Choice{Short: true, Passing: true}, faultsweep.Choice{Stale: true, Passing: true}
	for _, sim := range []bool{false, true} {
		name := map[bool]string{false: "", true: "simulated "}[sim]
		for _, op := range []struct {
			name string
			do   func(*rig)
		}{{"Do", sweptDo}, {"DoContext with a cancelled context", sweptContext}, {"Queue and Cancel", sweptCancel}, {"Stream", sweptPoll}} {
			fails, passes, more := []syscall.Errno{syscall.EIO, syscall.ENOMEM}, []syscall.Errno{syscall.EINTR}, []faultsweep.Choice{short}
			polls := append(slices.Clone(fails), syscall.EINTR)
			if sim {
				passes = append(passes, syscall.ECANCELED)
				more = append(more, stale)
			} else {
				fails, polls = append(fails, syscall.ECANCELED), append(polls, syscall.ECANCELED)
			}
			fails = append(fails, syscall.EAGAIN)
			instead := map[string][]faultsweep.Choice{"READ": choices(fails, passes, more...), "POLL_ADD": choices(polls, passes[1:])}
			ops = append(ops, faultsweep.Operation{Name: name + op.name, Run: rigged(path, content, sim, op.do), Sim: sim, Opened: true, Most: 2, Instead: instead})
		}
	}
	return ops
}

func sweptFile(t *testing.T) []faultsweep.Operation {
	content := make([]byte, 4096)
	kernelsim.PipeBytes(content, 1)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return sweptOperations(path, content)
}

// TestFaultSweep makes each call to the kernel fail in turn.
// Promise: reactor/right-result-error
func TestFaultSweep(t *testing.T) {
	faultsweep.Need(t)
	ringtest.NeedRing(t)
	faultsweep.Check(t, sweptFile(t))
}

// TestFaultSweepSimulated does the same with simulated rings.
// Promise: reactor/right-result-error
func TestFaultSweepSimulated(t *testing.T) { faultsweep.CheckSimulated(t, sweptFile(t)) }
