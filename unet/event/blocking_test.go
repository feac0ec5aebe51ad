// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestBlockingEcho reads in serve with short and long buffers, on several connections.
// Promise: unet/event/blocking-read-write
func TestBlockingEcho(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		var ended atomic.Int64
		s := start(t, Blocking(func(c net.Conn) {
			defer ended.Add(1)
			if c.RemoteAddr() == nil || c.LocalAddr().String() == "" {
				t.Error("no address")
			}
			for n := 7; ; n = 100_007 - n {
				buf := make([]byte, n)
				k, err := c.Read(buf)
				if err != nil {
					if err != io.EOF {
						t.Errorf("read: %v", err)
					}
					return
				}
				if _, err := c.Write(buf[:k]); err != nil {
					t.Errorf("write: %v", err)
				}
			}
		}), o)
		var wg sync.WaitGroup
		const conns = 5
		for i := range conns {
			c := dial(t, s)
			wg.Go(func() {
				exchange(t, c, random(300_000, uint64(i)))
				exchange(t, c, random(1, uint64(i)))
				_ = c.Close()
			})
		}
		wg.Wait()
		await(t, "all have ended", func() bool { return ended.Load() == conns })
	})
}

// TestBlockingDeadlines ends calls that wait, by deadlines and by Close, which are set
// before the call or during it. The connection still works after a deadline.
// Promise: unet/event/blocking-read-write
func TestBlockingDeadlines(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		o.WriteLimit = 100_000
		conns, steps := make(chan net.Conn), make(chan error)
		s := start(t, Blocking(func(c net.Conn) {
			p := make([]byte, 1)
			report := func(_ int, err error) { go func() { steps <- err }() } // the loop must not wait
			_ = c.SetReadDeadline(time.Now().Add(-time.Second))
			report(c.Read(p))
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			report(c.Read(p))
			_ = c.SetDeadline(time.Time{})
			report(c.Read(p)) // a byte
			go func() { conns <- c }()
			report(c.Read(p)) // the deadline is set during the call
			_ = c.SetReadDeadline(time.Time{})
			_ = c.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
			report(c.Write(make([]byte, 64<<20)))
			go func() { conns <- c }()
			report(c.Read(p)) // closed during the call
		}), o)
		peer := dial(t, s)
		expect := func(what string, want error) {
			t.Helper()
			err := receive(t, what, steps)
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
			var op *net.OpError
			if want != nil && !errors.As(err, &op) {
				t.Errorf("%s: %T is no *net.OpError", what, err)
			}
		}
		expect("a past deadline", os.ErrDeadlineExceeded)
		expect("a deadline", os.ErrDeadlineExceeded)
		if _, err := peer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		expect("a byte", nil)
		_ = receive(t, "connection", conns).SetReadDeadline(time.Now().Add(time.Millisecond))
		expect("a deadline set during the call", os.ErrDeadlineExceeded)
		expect("a write deadline", os.ErrDeadlineExceeded)
		c := receive(t, "connection", conns)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		expect("Close", net.ErrClosed)
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the second Close: %v", err)
		}
		_ = peer.Close()
	})
}

// TestBlockingSlowReader writes to a peer that reads late: the number of pending bytes is
// bounded, and all bytes arrive.
// Promise: unet/event/blocking-read-write
func TestBlockingSlowReader(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		o.WriteLimit, o.ListenConfig = 20_000, smallBuffers()
		want := random(3<<20, 4)
		var most atomic.Int64
		h := Blocking(func(c net.Conn) {
			if n, err := c.Write(want); n != len(want) || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
		})
		step := h.OnWritable
		h.OnWritable = func(c *Conn) {
			step(c)
			most.Store(max(most.Load(), int64(c.Pending())))
		}
		s := start(t, h, o)
		peer := dial(t, s)
		got, err := io.ReadAll(peer)
		if err != nil || string(got) != string(want) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if n := most.Load(); n > int64(o.WriteLimit+blockingPiece) {
			t.Errorf("%d bytes were pending", n)
		}
	})
}

// TestBlockingEnds ends connections by a reset, by Close of the server, by a panic and by
// runtime.Goexit: serve gets an error, or has ended, and no goroutine is left.
// Promise: unet/event/blocking-read-write
func TestBlockingEnds(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		var began, ended, panics atomic.Int64
		h := Blocking(func(c net.Conn) {
			began.Add(1)
			defer ended.Add(1)
			p := make([]byte, 1)
			for {
				if _, err := c.Read(p); err != nil {
					if _, err := c.Write(p); err == nil {
						t.Error("a Write after the end")
					}
					return
				}
				switch p[0] {
				case 'p':
					panic("on purpose")
				case 'g':
					runtime.Goexit()
				}
			}
		})
		h.OnPanic = func(*Conn, any) { panics.Add(1) }
		s := start(t, h, o)
		for _, p := range []string{"p", "g", "r", ""} {
			peer := dial(t, s)
			if _, err := peer.Write([]byte("x" + p)); err != nil {
				t.Fatal(err)
			}
			if p == "r" {
				_ = peer.(*net.TCPConn).SetLinger(0)
				_ = peer.Close()
			}
		}
		await(t, "all have begun and three have ended", func() bool { return began.Load() == 4 && ended.Load() == 3 && panics.Load() == 1 })
		await(t, "the fourth is open", func() bool { return s.Stats().Open == 1 })
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n := ended.Load(); n != 4 {
			t.Errorf("%d have ended", n)
		}
	})
}

// TestBlockingCloseBeforeAWait closes a connection after a call has checked it and before the call
// waits. OnClose, which would end the wait, may come much later, or never.
func TestBlockingCloseBeforeAWait(t *testing.T) {
	b := &blockingConn{closed: true, yield: func(struct{}) bool {
		t.Error("a call waits on a closed connection")
		return true
	}}
	b.wait(&b.readBy)
}

// TestBlockingHoldsNoBuffer has data arrive while serve waits in Write. When serve has read it, the
// connection must not hold the memory any more.
func TestBlockingHoldsNoBuffer(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		o.WriteLimit, o.ListenConfig = 1<<20, smallBuffers()
		conns := make(chan *Conn, 1)
		h := Blocking(func(c net.Conn) {
			buf := make([]byte, 1000)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				if _, err := c.Write(buf[:n]); err != nil {
					return
				}
			}
		})
		open := h.OnOpen
		h.OnOpen = func(c *Conn) { conns <- c; open(c) }
		s := start(t, h, o)
		peer := dial(t, s)
		_ = peer.(*net.TCPConn).SetReadBuffer(64 << 10) // few bytes fill the sockets
		c := receive(t, "OnOpen", conns)
		held := func() (n int) {
			done := make(chan struct{})
			c.Post(func() { n = cap(c.blocking.kept); close(done) })
			receive(t, "end of Post", done)
			return n
		}
		p := random(3<<20, 1)
		sent := make(chan error, 1)
		go func() { _, err := peer.Write(p); sent <- err }()
		await(t, "responses are pending", func() bool { return c.Pending() >= o.WriteLimit/2 })
		exact(t, peer, p)
		if err := receive(t, "end of the write", sent); err != nil {
			t.Fatal(err)
		}
		if n := held(); n > 8<<10 {
			t.Errorf("an idle connection holds %d bytes", n)
		}
	})
}
