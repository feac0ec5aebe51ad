// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestEcho(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		conns := ringtest.Rounds(40, 12)
		if testing.Short() {
			conns = 8
		}
		s := start(t, echoes(), o)
		var wg sync.WaitGroup
		for i := range conns {
			wg.Go(func() {
				c := dial(t, s)
				for _, n := range []int{1, 128, 4096, 4097, 70_000, 300_000} {
					exchange(t, c, random(n, uint64(i)))
				}
			})
		}
		wg.Wait()
		if n := s.Stats().Accepted; n != uint64(conns) {
			t.Errorf("%d connections accepted, want %d", n, conns)
		}
	})
}

// TestMessagesInOnePiece sends messages that are longer than a receive buffer. Once a few
// have arrived, OnData must get each as a whole, not in pieces of BufferSize.
func TestMessagesInOnePiece(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		h, calls := echoes(), atomic.Int64{}
		echo := h.OnData
		h.OnData = func(c *Conn, p []byte) { calls.Add(1); echo(c, p) }
		c := dial(t, start(t, h, o))
		for _, size := range []int{5000, 8 << 10, 16 << 10, 60 << 10, 100, 16 << 10} {
			const messages = 60
			calls.Store(0)
			for i := range messages {
				exchange(t, c, random(size, uint64(i)))
			}
			if n := calls.Load(); o.Mode != ModeNet && n > 3*messages/2 {
				t.Errorf("%d messages of %d bytes arrived in %d pieces", messages, size, n)
			}
		}
	})
}

func TestEchoOnUnixSocket(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		path := socketPath(t)
		s, err := Listen("unix", path, echoes(), o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			exchange(t, dial(t, s), random(10_000, uint64(i)))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := net.Dial("unix", path); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("the path is still there: %v", err)
		}
	})
}

func TestHalfClose(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		h := echoes()
		closed := make(chan error, 1)
		h.OnClose = func(_ *Conn, err error) { closed <- err }
		c := dial(t, start(t, h, o)).(*net.TCPConn)
		want := random(200_000, 1)
		go func() {
			_, _ = c.Write(want)
			_ = c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d of %d bytes came back: %v", len(got), len(want), err)
		}
		if err := receive(t, "OnClose", closed); err != io.EOF {
			t.Errorf("OnClose got %v", err)
		}
	})
}

func TestHandlerContinuesAfterEOF(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		closed := make(chan error, 1)
		s := start(t, Handler{
			OnEOF: func(c *Conn) {
				_, _ = c.Write([]byte("good"))
				time.AfterFunc(time.Millisecond, func() {
					_, _ = c.Writev(net.Buffers{[]byte("b"), nil, []byte("ye")})
					_ = c.Close()
				})
			},
			OnClose: func(_ *Conn, err error) { closed <- err },
		}, o)
		c := dial(t, s).(*net.TCPConn)
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); string(got) != "goodbye" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if err := receive(t, "OnClose", closed); err != nil {
			t.Errorf("OnClose got %v", err)
		}
	})
}

func TestReset(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		closed := make(chan error, 1)
		opened := make(chan struct{}, 1)
		s := start(t, Handler{
			OnOpen:  func(*Conn) { opened <- struct{}{} },
			OnClose: func(_ *Conn, err error) { closed <- err },
		}, o)
		c := dial(t, s).(*net.TCPConn)
		receive(t, "OnOpen", opened)
		_ = c.SetLinger(0)
		_ = c.Close()
		err := receive(t, "OnClose", closed)
		if _, ok := errors.AsType[*net.OpError](err); !ok || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("OnClose got %v", err)
		}
	})
}

func TestAbortResets(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		closed := make(chan error, 1)
		s := start(t, Handler{
			OnData:  func(c *Conn, _ []byte) { c.Abort() },
			OnClose: func(_ *Conn, err error) { closed <- err },
		}, o)
		c := dial(t, s)
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer read %v", err)
		}
		if err := receive(t, "OnClose", closed); err != net.ErrClosed {
			t.Errorf("OnClose got %v", err)
		}
	})
}

// TestCloseSendsWhatIsPending closes with far more pending bytes than a socket buffers.
func TestCloseSendsWhatIsPending(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		want := random(6<<20, 3)
		s := start(t, Handler{OnOpen: func(c *Conn) {
			if n, err := c.Write(want); n != len(want) || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
			_ = c.Close()
			if _, err := c.Write(want); !errors.Is(err, net.ErrClosed) {
				t.Errorf("write after close: %v", err)
			}
		}}, o)
		if got, err := io.ReadAll(dial(t, s)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d of %d bytes: %v", len(got), len(want), err)
		}
	})
}

// TestWritesFromManyGoroutines sends records whose pieces must not mix.
// Promise: unet/event/callbacks-connection-run
func TestWritesFromManyGoroutines(t *testing.T) {
	const writers, records, size = 8, 200, 100
	overModes(t, func(t *testing.T, o Options) {
		conns := make(chan *Conn, 1)
		room := make(chan struct{}, writers)
		s := start(t, Handler{
			OnOpen: func(c *Conn) { conns <- c },
			OnWritable: func(*Conn) {
				for range writers {
					select {
					case room <- struct{}{}:
					default:
					}
				}
			},
		}, o)
		client := dial(t, s)
		c := receive(t, "OnOpen", conns)
		var wg sync.WaitGroup
		defer wg.Wait()
		for w := range writers {
			wg.Go(func() {
				p := bytes.Repeat([]byte{byte(w)}, size)
				for i := range records {
					binary.BigEndian.PutUint32(p, uint32(i))
					for {
						_, err := c.Write(p)
						if err == nil {
							break
						}
						if err != ErrFull {
							t.Error(err)
							return
						}
						select {
						case <-room:
						case <-time.After(time.Millisecond):
						}
					}
				}
			})
		}
		var next [writers]uint32
		p := make([]byte, size)
		for range writers * records {
			if _, err := io.ReadFull(client, p); err != nil {
				t.Fatal(err)
			}
			w := p[size-1]
			if i := binary.BigEndian.Uint32(p); i != next[w] || bytes.Count(p[4:], []byte{w}) != size-4 {
				t.Fatalf("record %d of writer %d, want %d: %x", i, w, next[w], p)
			}
			next[w]++
		}
	})
}
