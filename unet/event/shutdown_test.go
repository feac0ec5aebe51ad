// SPDX-License-Identifier: MIT

package event

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestShutdownLosesNothing shuts down while requests are in flight: each client gets back
// all that had arrived before.
// Promise: unet/event/shutdown-loses-data
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
		for _, c := range clients {
			await(t, "arrival of the requests", func() bool { return unsent(t, c) == 0 })
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

// TestShutdownAsksTheHandler lets the handler send a last message.
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

// TestShutdownGivesUp checks that Shutdown ends with its context although a peer stays
// connected.
// Promise: unet/event/shutdown-loses-data
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

// TestCloseWhileBusy closes under load, repeatedly.
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

// counting checks that a stream counts in words of eight bytes without a gap. It checks
// every 64th word and the last of each piece: a gap shifts all words that follow.
type counting struct {
	next uint64
	part []byte
}

func (s *counting) check(p []byte) error {
	s.part = append(s.part, p...)
	words := len(s.part) / 8
	for i := 0; i < words; i = max(i+1, min(i+64, words-1)) {
		if v, want := binary.NativeEndian.Uint64(s.part[8*i:]), s.next+uint64(i); v != want {
			return fmt.Errorf("at offset %d the stream continues with offset %d", want*8, v*8)
		}
	}
	s.next += uint64(words)
	s.part = append(s.part[:0], s.part[8*words:]...)
	return nil
}

// goesOn is a handler that continues after OnShutdown until it has received the given
// number of further bytes, and then closes. Each stream must count.
func goesOn(t *testing.T, more int, answer bool) (h Handler, opened *atomic.Int64) {
	type session struct {
		counting
		left int // after OnShutdown, plus 1
	}
	of := func(c *Conn) *session { return c.Value().(*session) }
	opened = new(atomic.Int64)
	return Handler{
		OnOpen: func(c *Conn) { c.SetValue(&session{}); opened.Add(1) },
		OnData: func(c *Conn, p []byte) {
			s := of(c)
			if err := s.check(p); err != nil {
				t.Error(err)
				c.Abort()
				return
			}
			if answer {
				_, _ = c.Write(p)
			}
			if s.left > 0 {
				if s.left = max(s.left-len(p), 1); s.left == 1 {
					_ = c.Close()
				}
			}
		},
		OnShutdown: func(c *Conn) { of(c).left = more + 1 },
	}, opened
}

// TestShutdownWhilePeersSend shuts down while peers send without end: the bytes that they
// send before and after OnShutdown have no gap.
// Promise: unet/event/shutdown-loses-data
func TestShutdownWhilePeersSend(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		for range ringtest.Rounds(4, 1) {
			piece := ringtest.Rounds(4<<20, 1<<20)
			h, opened := goesOn(t, piece, false)
			s := start(t, h, o)
			var wg sync.WaitGroup
			const conns = 3
			var sent atomic.Int64
			for range conns {
				c := dial(t, s)
				wg.Go(func() {
					words := make([]uint64, 32<<10)
					p := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
					for n := uint64(0); ; {
						for i := range words {
							words[i] = n
							n++
						}
						if _, err := c.Write(p); err != nil {
							return
						}
						sent.Add(int64(len(p)))
					}
				})
			}
			await(t, "the streams run", func() bool { return opened.Load() == conns && sent.Load() > int64(piece) })
			ctx, cancel := context.WithTimeout(t.Context(), testPatience)
			if err := s.Shutdown(ctx); err != nil {
				t.Errorf("shutdown: %v", err)
			}
			cancel()
			wg.Wait()
		}
	})
}

// foreignClient sends words that count, as fast as it can, and checks that the words that
// come back count too. It prints how many bytes came back.
const foreignClient = `
import array, socket, sys, threading
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
def send():
    n = 0
    try:
        while True:
            c.sendall(array.array("Q", range(n, n + 8192)).tobytes())
            n += 8192
    except OSError:
        pass
threading.Thread(target=send, daemon=True).start()
got, part = 0, b""
try:
    while True:
        p = c.recv(1 << 16)
        if not p:
            break
        if got == 0:
            print("runs", flush=True)
        part += p
        whole = len(part) // 8 * 8
        words = array.array("Q", part[:whole])
        if words != array.array("Q", range(got, got + len(words))):
            sys.exit("a hole near %d bytes" % (got * 8))
        got += len(words)
        part = part[whole:]
except ConnectionResetError:
    pass
print("got", got * 8)
`

// TestShutdownWithForeignClients runs clients in another language that send while the
// server shuts down. The server echoes.
// Promise: unet/event/shutdown-loses-data
// Promise: unet/goroutine-never-idle
func TestShutdownWithForeignClients(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	overModes(t, func(t *testing.T, o Options) {
		h, _ := goesOn(t, ringtest.Rounds(1<<20, 256<<10), true)
		s := start(t, h, o)
		host, port, _ := net.SplitHostPort(s.Addr().String())
		var wg, running sync.WaitGroup
		for range ringtest.Rounds(3, 2) {
			cmd := exec.Command(python, "-c", foreignClient, host, port)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var complaint bytes.Buffer
			cmd.Stderr = &complaint
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			running.Add(1)
			wg.Go(func() {
				lines := bufio.NewReader(out)
				first, _ := lines.ReadString('\n')
				running.Done()
				rest, _ := io.ReadAll(lines)
				if err := cmd.Wait(); err != nil || first != "runs\n" || !bytes.HasPrefix(rest, []byte("got ")) {
					t.Errorf("%v: %q, %q\n%s", err, first, rest, complaint.Bytes())
				}
			})
		}
		running.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), testPatience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		wg.Wait()
	})
}

// TestShutdownUnderAFlood ends while clients keep connecting: each accepted connection is
// followed by another. When its context is done, Shutdown opens no more connections.
// Promise: unet/event/shutdown-loses-data
func TestShutdownUnderAFlood(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		for _, bounded := range []bool{false, true} {
			var opened, late atomic.Int64
			var over, stop atomic.Bool // the context is done; the flood ends
			var s *Server
			next := func() {
				if stop.Load() {
					return
				}
				if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
					_ = c.(*net.TCPConn).SetLinger(0)
					_ = c.Close()
				}
			}
			began := make(chan struct{})
			s = start(t, Handler{
				OnOpen: func(*Conn) {
					<-began
					opened.Add(1)
					next()
					if !bounded {
						return
					}
					if over.Load() {
						late.Add(1)
					}
					time.Sleep(time.Millisecond)
				},
				OnShutdown: func(c *Conn) { _ = c.Close() },
			}, o)
			close(began)
			for range 3 {
				next()
			}
			// Shutdown accepts up to a whole backlog, 4096 connections: half a minute on an emulated
			// processor that has other work.
			giveUp := time.AfterFunc(2*testPatience, func() {
				t.Error("Shutdown does not return under the flood")
				stop.Store(true)
			})
			await(t, "connections", func() bool { return opened.Load() > 50 })
			ctx, cancel := t.Context(), func() {}
			if bounded {
				ctx, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
				context.AfterFunc(ctx, func() { over.Store(true) })
			}
			err := s.Shutdown(ctx)
			if err != nil && !(bounded && errors.Is(err, context.DeadlineExceeded)) {
				t.Errorf("shutdown: %v", err)
			}
			giveUp.Stop()
			cancel()
			// Connections that a slow machine opens before Shutdown notices are not
			// counted.
			if n := late.Load(); n > 500 {
				t.Errorf("%d connections were opened after the context was done", n)
			}
		}
	})
}

// TestShutdownAfterEOF shuts a server down while a handler still uses a connection whose peer has
// ended its direction.
// Promise: unet/event/shutdown-loses-data
func TestShutdownAfterEOF(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		ended := make(chan struct{}, 1)
		s := start(t, Handler{
			OnEOF:      func(*Conn) { ended <- struct{}{} },
			OnShutdown: func(c *Conn) { _, _ = c.Write([]byte("bye")); _ = c.Close() },
		}, o)
		c := dial(t, s)
		_ = c.(*net.TCPConn).CloseWrite()
		receive(t, "OnEOF", ended)
		ctx, cancel := context.WithTimeout(t.Context(), testPatience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(c); string(got) != "bye" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestShutdownFreesTheAddress listens on the path of a server that is shut down and still has a
// connection. The end of the server must not remove the new socket.
// Promise: unet/event/path-unix-socket
func TestShutdownFreesTheAddress(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		opened, asked := make(chan struct{}, 1), make(chan *Conn, 1)
		s := startOn(t, "unix", socketPath(t), Handler{
			OnOpen:     func(*Conn) { opened <- struct{}{} },
			OnShutdown: func(c *Conn) { asked <- c },
		}, o)
		dial(t, s)
		receive(t, "OnOpen", opened)
		over := make(chan error, 1)
		go func() { over <- s.Shutdown(t.Context()) }()
		c := receive(t, "OnShutdown", asked)
		var ln net.Listener
		await(t, "the path can be used again", func() (ok bool) {
			l, err := net.Listen("unix", s.Addr().String())
			ln = l
			return err == nil
		})
		defer ln.Close()
		_ = c.Close()
		if err := receive(t, "end of Shutdown", over); err != nil {
			t.Error(err)
		}
		d, err := net.Dial("unix", s.Addr().String())
		if err != nil {
			t.Fatalf("the new socket: %v", err)
		}
		_ = d.Close()
	})
}
