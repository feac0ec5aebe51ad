// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/busytest"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestPeerThatDoesNotRead writes to an echo server without reading: the server must stop
// reading, hold a bounded number of bytes, and lose none.
// Promise: unet/event/peer-read-occupies
func TestPeerThatDoesNotRead(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		o.WriteLimit, o.ListenConfig = 20_000, smallBuffers() // otherwise the system buffers MiB
		var most, longest atomic.Int64
		var refused atomic.Int64
		s := start(t, Handler{OnData: func(c *Conn, p []byte) {
			longest.Store(max(longest.Load(), int64(len(p))))
			if _, err := c.Write(p); err != nil {
				refused.Add(1)
			}
			most.Store(max(most.Load(), int64(c.Pending())))
		}}, o)
		c := dial(t, s)
		buffered := c.(*net.TCPConn)
		_ = buffered.SetReadBuffer(64 << 10)
		_ = buffered.SetWriteBuffer(64 << 10)
		var sent []byte
		full := false // a slow machine may also accept no more
		for end := time.Now().Add(testPatience); !full; {
			p := random(64<<10, uint64(len(sent)))
			_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			n, err := c.Write(p)
			sent = append(sent, p[:n]...)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			full = err != nil && most.Load() >= int64(o.WriteLimit)
			if len(sent) > 64<<20 || time.Now().After(end) {
				t.Fatalf("the server has read %d bytes and holds %d", len(sent), most.Load())
			}
		}
		_ = c.SetDeadline(time.Now().Add(testPatience))
		exact(t, c, sent)
		exchange(t, c, random(100_000, 9))
		if n := refused.Load(); n != 0 {
			t.Errorf("%d writes were refused", n)
		}
		if n := most.Load(); n > int64(o.WriteLimit)+longest.Load() {
			t.Errorf("%d bytes were pending, the limit is %d, and one write of up to %d", n, o.WriteLimit, longest.Load())
		}
		if n := longest.Load(); n > bulkPiece {
			t.Errorf("a piece has %d bytes", n)
		}
	})
}

// TestWritable writes from OnOpen and OnWritable as much as is accepted.
func TestWritable(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		o.WriteLimit = 10_000
		total := ringtest.Rounds(3<<20, 1<<20)
		want := random(total, 5)
		var off int
		push := func(c *Conn) {
			for off < total {
				n, err := c.Write(want[off:min(off+1000, total)])
				off += n
				if err == ErrFull {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			_ = c.Close()
		}
		s := start(t, Handler{OnOpen: push, OnWritable: push}, o)
		if got, err := io.ReadAll(dial(t, s)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d of %d bytes: %v", len(got), total, err)
		}
	})
}

// TestReadingGoesOnAtHalf has a peer that reads until half of WriteLimit is pending, and then no
// more. What it sends must be read, although a write waits for it.
// Promise: unet/event/peer-read-occupies
func TestReadingGoesOnAtHalf(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		o.WriteLimit, o.ListenConfig = 1<<20, smallBuffers()
		first, second := random(800<<10, 1), random(o.WriteLimit/2, 2)
		got := make(chan string, 2)
		s := start(t, Handler{OnData: func(c *Conn, p []byte) {
			if p[0] == 'x' {
				for _, lent := range [][]byte{first, second} {
					if err := c.WriteFunc(lent, func(error) {}); err != nil {
						t.Error(err)
					}
				}
				if !c.Full() {
					t.Error("WriteLimit is not reached")
				}
			}
			got <- string(p)
		}}, o)
		peer := dial(t, s)
		_ = peer.(*net.TCPConn).SetReadBuffer(64 << 10)
		for _, request := range []string{"x", "y"} {
			if _, err := peer.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			if request == "y" {
				exact(t, peer, first)
			}
			if p := receive(t, request, got); p != request {
				t.Errorf("%q, want %q", p, request)
			}
		}
		exact(t, peer, second)
	})
}

func TestPauseRead(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		got := make(chan []byte, 1000)
		conns := make(chan *Conn, 1)
		s := start(t, Handler{
			OnOpen: func(c *Conn) { c.PauseRead(); conns <- c },
			OnData: func(_ *Conn, p []byte) { got <- bytes.Clone(p) },
		}, o)
		client := dial(t, s)
		c := receive(t, "OnOpen", conns)
		_, _ = client.Write([]byte("one"))
		select {
		case p := <-got:
			t.Errorf("%q was delivered while paused", p)
		case <-time.After(20 * time.Millisecond):
		}
		c.ResumeRead()
		if p := receive(t, "data", got); string(p) != "one" {
			t.Errorf("%q", p)
		}
		c.PauseRead()
		_, _ = client.Write([]byte("two"))
		time.Sleep(5 * time.Millisecond) // the data may arrive before the pause, or after
		c.ResumeRead()
		if p := receive(t, "data", got); string(p) != "two" {
			t.Errorf("%q", p)
		}
	})
}

// TestFewBuffers lets many connections share two buffers.
// Promise: unet/event/peer-read-occupies
func TestFewBuffers(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		o.Buffers, o.BufferSize = 2, 100
		s := start(t, echoes(), o)
		done := make(chan struct{})
		const conns = 10
		for i := range conns {
			go func() {
				defer func() { done <- struct{}{} }()
				exchange(t, dial(t, s), random(50_000, uint64(i)))
			}()
		}
		for range conns {
			receive(t, "end of an exchange", done)
		}
	})
}

func TestTimer(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		fired := make(chan time.Duration, 10)
		begin := time.Now()
		s := start(t, Handler{
			OnOpen: func(c *Conn) {
				c.SetTimer(time.Hour)
				c.SetTimer(20 * time.Millisecond)
				c.SetTimer(30 * time.Millisecond)
			},
			OnData:  func(c *Conn, _ []byte) { c.SetTimer(5 * time.Millisecond); c.SetTimer(0) },
			OnTimer: func(*Conn) { fired <- time.Since(begin) },
		}, o)
		c := dial(t, s)
		if d := receive(t, "OnTimer", fired); d < 30*time.Millisecond {
			t.Errorf("fired after %v", d)
		}
		_, _ = c.Write([]byte("x"))
		select {
		case <-fired:
			t.Error("a stopped timer fired, or a timer fired twice")
		case <-time.After(50 * time.Millisecond):
		}
	})
}

func TestDoValueAndAddresses(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		conns := make(chan *Conn, 1)
		closed := make(chan string, 1)
		s := start(t, Handler{
			OnOpen:  func(c *Conn) { c.SetValue(7); conns <- c },
			OnClose: func(c *Conn, _ error) { closed <- c.LocalAddr().String() },
		}, o)
		client := dial(t, s)
		c := receive(t, "OnOpen", conns)
		if c.Value() != 7 || c.LocalAddr().String() != client.RemoteAddr().String() || c.RemoteAddr().String() != client.LocalAddr().String() {
			t.Errorf("value %v, %v from %v", c.Value(), c.LocalAddr(), c.RemoteAddr())
		}
		ran := make(chan struct{}, 1)
		c.Post(func() { ran <- struct{}{} })
		receive(t, "Do", ran)
		_ = c.Close()
		if got := receive(t, "OnClose", closed); got != s.Addr().String() {
			t.Errorf("address in OnClose %s", got)
		}
		await(t, "it is closed", func() bool { return s.Stats().Open == 0 })
		if got := c.RemoteAddr().String(); got != client.LocalAddr().String() {
			t.Errorf("after OnClose the peer's address is %s", got)
		}
		c.Post(func() { t.Error("Do ran after OnClose") })
		c.SetTimer(1)
		c.PauseRead()
		if _, err := c.Write([]byte("x")); err == nil {
			t.Error("write after OnClose")
		}
	})
}

// TestFullDuplex lets both sides send more than all buffers hold before either reads.
// Without SetFullDuplex the server stops reading; with it the peer's data gets through.
// Promise: unet/event/setfullduplex-sides-send
func TestFullDuplex(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		o.WriteLimit, o.ListenConfig = 20_000, smallBuffers()
		o.Buffers, o.BufferSize = 16, 1000 // these bytes may be read before reading stops
		total := ringtest.Rounds(8<<20, 2<<20)
		down := random(total, 6)
		up := random(total, 7)
		for _, duplex := range []bool{false, true} {
			var off, got int
			same := true
			received := make(chan int, 1)
			push := func(c *Conn) {
				for off < total {
					n, err := c.Write(down[off:min(off+1000, total)])
					off += n
					if err != nil {
						return
					}
				}
				_ = c.CloseWrite()
			}
			s := start(t, Handler{
				OnOpen: func(c *Conn) { c.SetFullDuplex(duplex); push(c) },
				OnData: func(_ *Conn, p []byte) {
					same = same && bytes.Equal(p, up[got:got+len(p)])
					got += len(p)
				},
				OnEOF:      func(*Conn) { received <- got },
				OnWritable: push,
			}, o)
			// The kernel grows buffers unless they are set before connecting.
			c, err := (&net.Dialer{Control: smallBuffers().Control}).Dial("tcp", s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			_ = c.SetDeadline(time.Now().Add(testPatience))
			if !duplex {
				_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
				if n, err := c.Write(up); n == total || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%d bytes were read from a peer that does not read: %v", n, err)
				}
				continue
			}
			if n, err := c.Write(up); n != total || err != nil {
				t.Errorf("%d of %d bytes written: %v", n, total, err)
			}
			_ = c.(*net.TCPConn).CloseWrite()
			if n := receive(t, "end of the stream", received); n != total || !same {
				t.Errorf("the server got %d of %d bytes, as sent: %v", n, total, same)
			}
			if all, err := io.ReadAll(c); err != nil || !bytes.Equal(all, down) {
				t.Errorf("the peer got %d of %d bytes: %v", len(all), total, err)
			}
		}
	})
}

// TestTurnBytes lets one peer send without end and runs a function of another connection in
// each iteration. Between two of its calls, which may belong to the end of one iteration
// and the beginning of the next, the first connection must not get more than two budgets.
// Promise: unet/event/connection-gets-most
func TestTurnBytes(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		if o.Mode == ModeNet {
			t.Skip("needs a backend with event loops")
		}
		const budget, piece = 32 << 10, 4 << 10
		o.TurnBytes, o.Loops = budget, 1
		var total, first, before, most, turns int // on the loop
		over := make(chan bool)
		const enough = 8 << 20 // after the first iteration
		var turn func(c *Conn)
		turn = func(c *Conn) {
			most = max(most, total-before)
			if before = total; total >= first+enough {
				close(over)
				return
			}
			turns++
			c.Post(func() { turn(c) })
		}
		s := start(t, Handler{OnData: func(c *Conn, p []byte) {
			if p[0] == 'v' {
				first, before = total, total
				turn(c)
				return
			}
			total += len(p)
		}}, o)
		go func(c net.Conn) {
			for p := make([]byte, 1<<20); ; {
				if _, err := c.Write(p); err != nil {
					return
				}
			}
		}(dial(t, s))
		if _, err := dial(t, s).Write([]byte("v")); err != nil {
			t.Fatal(err)
		}
		receive(t, "end of the stream", over)
		if most > 2*(budget+piece) {
			t.Errorf("OnData got %d bytes of a connection in one of %d iterations, the budget is %d", most, turns, budget)
		}
	})
}

// TestBusyLoopKeepsTheNetwork has a loop call functions without end, for which it needs no system
// call.
// Promise: unet/goroutine-never-idle
func TestBusyLoopKeepsTheNetwork(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		busytest.Run(t, func(over *atomic.Bool) string {
			s := start(t, Handler{OnData: func(c *Conn, _ []byte) {
				var again func()
				again = func() {
					for range 1000 { // few turns, because each one allocates
						if over.Load() {
							return
						}
					}
					c.Post(again)
				}
				again()
			}}, o)
			return s.Addr().String()
		})
	})
}
