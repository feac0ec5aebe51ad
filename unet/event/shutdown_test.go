// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestShutdownLosesNothing shuts down while requests are on their way: each
// client gets back all that it had sent before.
func TestShutdownLosesNothing(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		var closed atomic.Int64
		h := echoes()
		h.OnClose = func(_ *Conn, err error) {
			closed.Add(1)
			if err != nil {
				t.Errorf("OnClose got %v", err)
			}
		}
		s := start(t, h, o)
		const conns = 30
		var clients [conns]net.Conn
		sent := make([][]byte, conns)
		for i := range conns {
			clients[i] = dial(t, s)
			sent[i] = random(1+i*3000, uint64(i))
			if _, err := clients[i].Write(sent[i]); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for i, c := range clients {
			wg.Go(func() {
				got, err := io.ReadAll(c)
				if err != nil || !bytes.Equal(got, sent[i]) {
					t.Errorf("connection %d: %d of %d bytes came back: %v", i, len(got), len(sent[i]), err)
				}
				_ = c.Close()
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), testPatience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		wg.Wait()
		if n := closed.Load(); n != conns {
			t.Errorf("OnClose was called %d times, want %d", n, conns)
		}
		if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
			_ = c.Close()
			t.Error("the server still accepts")
		}
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("second shutdown: %v", err)
		}
	})
}

// TestShutdownAsksTheHandler lets the handler say goodbye.
func TestShutdownAsksTheHandler(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		opened := make(chan struct{}, 1)
		s := start(t, Handler{
			OnOpen: func(*Conn) { opened <- struct{}{} },
			OnData: func(c *Conn, p []byte) { _, _ = c.Write(bytes.ToUpper(p)) },
			OnShutdown: func(c *Conn) {
				time.AfterFunc(5*time.Millisecond, func() {
					_, _ = c.Write([]byte("bye"))
					_ = c.Close()
				})
			},
		}, o)
		c := dial(t, s)
		receive(t, "OnOpen", opened)
		_, _ = c.Write([]byte("last "))
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(c); string(got) != "LAST bye" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestShutdownGivesUp ends with its context although a peer stays.
func TestShutdownGivesUp(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		opened, closed := make(chan struct{}, 1), make(chan error, 1)
		s := start(t, Handler{
			OnOpen:  func(*Conn) { opened <- struct{}{} },
			OnClose: func(_ *Conn, err error) { closed <- err },
		}, o)
		dial(t, s)
		receive(t, "OnOpen", opened)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shutdown: %v", err)
		}
		if err := receive(t, "OnClose", closed); err != net.ErrClosed {
			t.Errorf("OnClose got %v", err)
		}
	})
}

// TestCloseWhileBusy closes under load, again and again.
func TestCloseWhileBusy(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		for round := range 5 {
			var open atomic.Int64
			h := echoes()
			h.OnOpen = func(*Conn) { open.Add(1) }
			h.OnClose = func(*Conn, error) { open.Add(-1) }
			s, err := Listen("tcp", "127.0.0.1:0", h, o)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			var through atomic.Int64
			for i := range 8 {
				wg.Go(func() {
					c, err := net.Dial("tcp", s.Addr().String())
					if err != nil {
						return
					}
					defer c.Close()
					p := random(10_000, uint64(i))
					for {
						if _, err := c.Write(p); err != nil {
							return
						}
						if _, err := io.ReadFull(c, make([]byte, len(p))); err != nil {
							return
						}
						through.Add(1)
					}
				})
			}
			await(t, "some messages", func() bool { return through.Load() > int64(10*round) })
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if n := open.Load(); n != 0 {
				t.Errorf("%d connections without OnClose", n)
			}
			wg.Wait()
		}
	})
}
