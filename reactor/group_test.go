// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// pair returns two ends of a connection on the loopback. Of a Unix stream Linux
// 6.18 may lose the end: see [uring.SQE.RecvMultishot].
func pair(t testing.TB) (a, b int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	socket := func() int {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		must(err)
		return fd
	}
	ln, a := socket(), socket()
	defer syscall.Close(ln)
	must(syscall.Bind(ln, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(syscall.Listen(ln, 1))
	addr, err := syscall.Getsockname(ln)
	must(err)
	must(syscall.Connect(a, addr))
	b, _, err = syscall.Accept4(ln, syscall.SOCK_CLOEXEC)
	must(err)
	t.Cleanup(func() { syscall.Close(a); syscall.Close(b) })
	return a, b
}

func stock(t testing.TB, r *Reactor, o BufferGroupOptions) *BufferGroup {
	t.Helper()
	ringtest.NeedKernel(t, "multishot receive", "6.0")
	g, err := r.NewBufferGroup(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func recvOp(fd int) *Op {
	op := &Op{}
	op.SQE.RecvMultishot(uring.Fd(fd), 0, 0)
	return op
}

// overGroups runs a test over both kinds of loop, with whole and incremental
// buffers.
func overGroups(t *testing.T, buffers, size int, test func(t *testing.T, r *Reactor, g *BufferGroup)) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		for _, incremental := range []bool{false, true} {
			name := "whole"
			if incremental {
				name = "incremental"
			}
			t.Run(name, func(t *testing.T) {
				g := stock(t, r, BufferGroupOptions{Buffers: buffers, BufferSize: size, Incremental: incremental})
				test(t, r, g)
				waitFor(t, func() bool { return r.Stats().InFlight == 0 })
				if err := g.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// TestGroupDeliversEverything sends through a group with far too few buffers to
// callbacks that use them, and to a slow goroutine that keeps them.
func TestGroupDeliversEverything(t *testing.T) {
	overGroups(t, 4, 64, func(t *testing.T, r *Reactor, g *BufferGroup) {
		for _, keep := range []bool{false, true} {
			before := r.Stats()
			total := ringtest.Rounds(40_000, 16_000)
			rd, wr := pair(t)
			want := make([]byte, total)
			for i := range want {
				want[i] = byte(i * 7 / 3)
			}
			kept := make(chan Chunk, 1<<10)
			end := make(chan Result, 1)
			var got []byte
			if _, err := g.Stream(recvOp(rd), func(e *Event) {
				switch {
				case !e.More():
					close(kept)
					end <- e.Result
				case int(e.Res) != len(e.Data):
					t.Errorf("%d bytes, but the event says %d", len(e.Data), e.Res)
				case keep:
					kept <- e.Keep()
					if again := e.Keep(); again.Data != nil {
						t.Error("kept twice")
					}
				default:
					got = append(got, e.Data...)
				}
			}); err != nil {
				t.Fatal(err)
			}
			var sender sync.WaitGroup
			sender.Go(func() {
				for p := want; len(p) > 0; {
					n, err := syscall.Write(wr, p[:min(len(p), 1000)])
					if err != nil {
						t.Error(err)
						break
					}
					p = p[n:]
				}
				syscall.Shutdown(wr, syscall.SHUT_WR)
			})
			for c := range kept {
				got = append(got, c.Data...)
				c.Release()
				c.Release() // nothing
			}
			if res := <-end; res.Res != 0 || res.Cause != nil {
				t.Errorf("the end: %+v", res)
			}
			sender.Wait()
			if !bytes.Equal(got, want) {
				t.Errorf("%d bytes arrived in another form than %d that were sent", len(got), len(want))
			}
			s := r.Stats()
			if keep && s.Starved == before.Starved {
				t.Error("the group was never empty")
			}
			if s.Refills == before.Refills {
				t.Error("no buffer came back")
			}
		}
	})
}

// TestGroupOfManyStreams has many streams share few buffers.
func TestGroupOfManyStreams(t *testing.T) {
	overGroups(t, 8, 32, func(t *testing.T, r *Reactor, g *BufferGroup) {
		const each = 3000
		streams := min(40, r.opts.InFlight)
		var sum atomic.Int64
		var ended sync.WaitGroup
		for range streams {
			rd, wr := pair(t)
			ended.Add(1)
			if _, err := g.Stream(recvOp(rd), func(e *Event) {
				sum.Add(int64(len(e.Data)))
				if !e.More() {
					if e.Res != 0 || e.Cause != nil {
						t.Errorf("%+v", e.Result)
					}
					ended.Done()
				}
			}); err != nil {
				t.Fatal(err)
			}
			go func() {
				for range each / 100 {
					syscall.Write(wr, make([]byte, 100))
				}
				syscall.Shutdown(wr, syscall.SHUT_WR)
			}()
		}
		ended.Wait()
		if sum.Load() != int64(streams*each) {
			t.Errorf("%d bytes of %d", sum.Load(), streams*each)
		}
	})
}

// TestStarvedStreamEnds cancels streams that wait for a buffer which nobody
// gives back, and closes a reactor with one.
func TestStarvedStreamEnds(t *testing.T) {
	overGroups(t, 1, 8, func(t *testing.T, r *Reactor, g *BufferGroup) {
		rd, wr := pair(t)
		before := r.Stats().Starved
		var kept []Chunk
		end := make(chan Result, 1)
		fn := func(e *Event) {
			if !e.More() {
				end <- e.Result
				return
			}
			kept = append(kept, e.Keep())
		}
		id, err := g.Stream(recvOp(rd), fn)
		if err != nil {
			t.Fatal(err)
		}
		syscall.Write(wr, make([]byte, 80))
		waitFor(t, func() bool { return r.Stats().Starved > before })
		if err := g.Close(); !errors.Is(err, errGroupBusy) {
			t.Errorf("close with a stream: %v", err)
		}
		if err := r.Cancel(id); err != nil {
			t.Fatal(err)
		}
		if res := <-end; res.Errno() != syscall.ECANCELED || res.Cause != nil {
			t.Errorf("%+v", res)
		}
		for i := range kept {
			kept[i].Release()
		}
		// What it did not take is there for the next.
		n := 0
		if _, err := g.Stream(recvOp(rd), func(e *Event) {
			n += len(e.Data)
			if !e.More() {
				end <- e.Result
			}
		}); err != nil {
			t.Fatal(err)
		}
		syscall.Shutdown(wr, syscall.SHUT_WR)
		if res := <-end; res.Res != 0 || n+8*len(kept) != 80 {
			t.Errorf("%+v after %d bytes", res, n+8*len(kept))
		}
	})
}

func TestCloseEndsStarvedStreams(t *testing.T) {
	for _, o := range []Options{{Loops: 1}, {Loops: 1, Pinned: true}} {
		r := open(t, o)
		g := stock(t, r, BufferGroupOptions{Buffers: 1, BufferSize: 8})
		rd, wr := pair(t)
		end := make(chan Result, 1)
		var kept Chunk
		if _, err := g.Stream(recvOp(rd), func(e *Event) {
			if !e.More() {
				end <- e.Result
				return
			}
			kept = e.Keep()
		}); err != nil {
			t.Fatal(err)
		}
		syscall.Write(wr, []byte("sixteen bytes..."))
		waitFor(t, func() bool { return r.Stats().Starved > 0 })
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if res := <-end; !errors.Is(res.Cause, ErrClosed) {
			t.Errorf("%+v", res)
		}
		if string(kept.Data) != "sixteen " {
			t.Errorf("kept: %q", kept.Data)
		}
		kept.Release()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if _, err := g.Stream(recvOp(rd), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("a stream of a closed group: %v", err)
		}
		if _, err := r.NewBufferGroup(BufferGroupOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("a group of a closed reactor: %v", err)
		}
	}
}

// TestGroupLimits has the kernel refuse, and the caller ask for too much.
func TestGroupLimits(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		if _, err := r.NewBufferGroup(BufferGroupOptions{Buffers: 1 << 20}); err == nil {
			t.Error("a million buffers")
		}
		g := stock(t, r, BufferGroupOptions{Buffers: 3, BufferSize: 10})
		if n := len(g.stores[0].lent); n != 4 {
			t.Errorf("%d buffers", n)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
		again := stock(t, r, BufferGroupOptions{})
		if again.id != g.id {
			t.Errorf("group %d was not used again, but %d", g.id, again.id)
		}
	})
}

// TestLimitOfAStreamSurvivesStarvation counts what a stream with a limit brings
// although it is started again and again.
func TestLimitOfAStreamSurvivesStarvation(t *testing.T) {
	ringtest.NeedKernel(t, "limit of a multishot receive", "6.16")
	overGroups(t, 2, 16, func(t *testing.T, r *Reactor, g *BufferGroup) {
		rd, wr := pair(t)
		n, last := 0, make(chan Result, 2)
		op := &Op{}
		op.SQE.RecvMultishotLimit(uring.Fd(rd), 0, 1000, 0, 0)
		id, err := g.Stream(op, func(e *Event) {
			n += len(e.Data)
			if !e.More() {
				last <- e.Result
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		syscall.Write(wr, make([]byte, 5000))
		select {
		case res := <-last:
			if res.Res <= 0 || n < 1000 || n >= 1000+16 { // the kernel ends with the buffer that reaches it
				t.Errorf("%d bytes, the last %+v", n, res)
			}
		case <-time.After(ringtest.Patience):
			t.Fatalf("no end after %d bytes", n)
		}
		after := make(chan Result)
		nop := new(Op)
		nop.SQE.Nop()
		if _, err := id.loop.queue(nop, func(res Result) { after <- res }, false, time.Time{}); err != nil {
			t.Fatal(err)
		}
		<-after // callbacks come in order
		if len(last) > 0 {
			t.Errorf("a second end: %+v", <-last)
		}
	})
}

// TestGroupDeliversBundles has one completion cover several buffers.
func TestGroupDeliversBundles(t *testing.T) {
	ringtest.NeedKernel(t, "bundles", "6.10")
	overGroups(t, 16, 64, func(t *testing.T, r *Reactor, g *BufferGroup) {
		rd, wr := pair(t)
		want := make([]byte, 10_000)
		for i := range want {
			want[i] = byte(i * 7 / 3)
		}
		var got []byte
		end := make(chan Result, 1)
		before := r.Stats()
		op := recvOp(rd)
		op.SQE.SetNetFlags(uring.NetBundle)
		events := 0
		if _, err := g.Stream(op, func(e *Event) {
			if !e.More() {
				end <- e.Result
				return
			}
			events++
			if int(e.Res) != len(e.Data) || len(e.Data) > 64 {
				t.Errorf("%d bytes, but the event says %d", len(e.Data), e.Res)
			}
			got = append(got, e.Data...)
		}); err != nil {
			t.Fatal(err)
		}
		for p := want; len(p) > 0; p = p[500:] {
			syscall.Write(wr, p[:500])
		}
		syscall.Shutdown(wr, syscall.SHUT_WR)
		if res := <-end; res.Res != 0 || res.Cause != nil {
			t.Errorf("the end: %+v", res)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes arrived in another form than %d that were sent", len(got), len(want))
		}
		// How many buffers a completion covers is the kernel's choice; 6.12
		// chose one, 6.18 more.
		if completions := int(r.Stats().Events - before.Events); completions > events {
			t.Errorf("%d completions for %d pieces", completions, events)
		}
	})
}

func TestStreamOfAGroupDoesNotAllocate(t *testing.T) {
	for _, o := range []Options{{Loops: 1}, {Loops: 1, Pinned: true}} {
		r := open(t, o)
		g := stock(t, r, BufferGroupOptions{Buffers: 8, BufferSize: 64})
		rd, wr := pair(t)
		got := make(chan int, 1)
		if _, err := g.Stream(recvOp(rd), func(e *Event) {
			if c := e.Keep(); e.More() {
				got <- len(c.Data)
				c.Release()
			}
		}); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 10)
		if n := ringtest.Allocations(200, func() {
			syscall.Write(wr, p)
			<-got
		}); n >= 1 && !raceEnabled {
			t.Errorf("%+v: %v allocations per event", o, n)
		}
	}
}

// TestStreamRefusesSingleOperations tries entries that end with their first
// completion.
func TestStreamRefusesSingleOperations(t *testing.T) {
	overGroups(t, 1, 8, func(t *testing.T, _ *Reactor, g *BufferGroup) {
		rd, _ := pair(t)
		for _, op := range []*Op{{}, readOp(rd, make([]byte, 1), 0)} {
			if _, err := g.Stream(op, nil); !errors.Is(err, errNoStream) {
				t.Errorf("%v: %v", uring.Op(op.SQE.Raw().Opcode), err)
			}
		}
	})
}
