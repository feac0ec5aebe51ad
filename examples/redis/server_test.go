// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet/event"
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

// overModes runs a test with a server on each backend that can be had.
func overModes(t *testing.T, test func(t *testing.T, s *server, address string)) {
	t.Helper()
	overModesWithIdle(t, time.Hour, test)
}

func overModesWithIdle(t *testing.T, idle time.Duration, test func(t *testing.T, s *server, address string)) {
	for _, o := range []event.Options{{Mode: event.ModeRing}, {Mode: event.ModeRing, Loops: 3}, {Mode: event.ModeEpoll}, {Mode: event.ModeNet}} {
		t.Run(fmt.Sprintf("%v-%d", o.Mode, o.Loops), func(t *testing.T) {
			if o.Mode == event.ModeRing {
				ringtest.NeedKernel(t, "multishot receive", "6.0")
				ringtest.NeedRing(t)
			}
			if o.Mode == event.ModeEpoll && runtime.GOOS != "linux" {
				t.Skip("needs epoll")
			}
			s := newServer(1<<20, idle)
			l, err := event.Listen("tcp", "127.0.0.1:0", s.handler(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			test(t, s, l.Addr().String())
		})
	}
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	for errors.Is(err, syscall.ECONNRESET) { // by the server's idle limit, before a busy machine has returned from connect
		c, err = net.Dial("tcp", address)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(ringtest.Patience))
	return c.(*net.TCPConn)
}

// session sends all of in and returns everything that comes back.
func session(t *testing.T, address, in string) string {
	t.Helper()
	c := dial(t, address)
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, in)
		sent <- errors.Join(err, c.CloseWrite())
	}()
	out, err := io.ReadAll(c)
	if err := errors.Join(err, <-sent); err != nil && !errors.Is(err, syscall.ENOTCONN) {
		t.Error(err) // that is CloseWrite after the server's end
	}
	return string(out)
}

func TestCommands(t *testing.T) {
	overModes(t, func(t *testing.T, s *server, address string) {
		for _, c := range [][2]string{
			{"PING\r\n", "+PONG\r\n"},
			{"ping hello\r\n", "$5\r\nhello\r\n"},
			{"ECHO hello\r\nECHO\r\n", "$5\r\nhello\r\n-ERR wrong number of arguments for \"ECHO\"\r\n"},
			{"*1\r\n$4\r\nPiNg\r\n", "+PONG\r\n"},
			{"GET a\r\n", "$-1\r\n"},
			{"SET a 1\r\nGET a\r\nINCR a\r\nGET a\r\n", "+OK\r\n$1\r\n1\r\n:2\r\n$1\r\n2\r\n"},
			{"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\r\n\x00x\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "+OK\r\n$4\r\n\r\n\x00x\r\n"},
			{"INCR a\r\n", "-ERR " + errInteger.Error() + "\r\n"},
			{"SET b 9223372036854775807\nINCR b\nGET b\n", "+OK\r\n-ERR " + errInteger.Error() + "\r\n$19\r\n9223372036854775807\r\n"},
			{"INCR c\r\nDEL a b c d\r\nGET c\r\n", ":1\r\n:3\r\n$-1\r\n"},
			{"GET\r\nPING\r\n", "-ERR wrong number of arguments for \"GET\"\r\n+PONG\r\n"},
			{"flushall\r\n", "-ERR unknown command \"flushall\"\r\n"},
			{"getgetgetget a\r\n", "-ERR unknown command \"getgetgetget\"\r\n"},
			{"QUIT\r\nPING\r\n", "+OK\r\n"},
			{"*1\r\n:1\r\nPING\r\n", "-ERR protocol error: " + errDollar.Error() + "\r\n"},
			{"*2\r\n$3\r\nGET\r\n$1\r\n", ""},
		} {
			if got := session(t, address, c[0]); got != c[1] {
				t.Errorf("%q was answered %q, want %q", c[0], got, c[1])
			}
		}
		if n := s.store.bytes.Load(); n != 0 {
			t.Errorf("an empty store counts %d bytes", n)
		}
	})
}

// TestPieces sends a request a byte at a time, and another in two halves.
func TestPieces(t *testing.T) {
	overModes(t, func(t *testing.T, _ *server, address string) {
		c := dial(t, address)
		r := bufio.NewReader(c)
		value := strings.Repeat("v", 100_000)
		for _, request := range []string{
			"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n",
			fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", len(value), value),
		} {
			step := 1
			if len(request) > 100 {
				step = len(request)/2 + 1
			}
			for from := 0; from < len(request); from += step {
				if _, err := io.WriteString(c, request[from:min(from+step, len(request))]); err != nil {
					t.Fatal(err)
				}
			}
			if line, err := r.ReadString('\n'); line != "+OK\r\n" {
				t.Fatalf("%q, %v", line, err)
			}
		}
		_, _ = io.WriteString(c, "GET k\r\n")
		want := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Errorf("%.20q, %v", got, err)
		}
	})
}

// TestPipeline has many connections send far ahead of their answers.
func TestPipeline(t *testing.T) {
	overModes(t, func(t *testing.T, s *server, address string) {
		const conns = 8
		each := 5000
		if testing.Short() {
			each = 300
		}
		var all sync.WaitGroup
		for i := range conns {
			all.Go(func() {
				in := strings.Repeat("INCR all\r\n*2\r\n$4\r\nINCR\r\n$2\r\nk"+string(rune('a'+i))+"\r\n", each)
				out := session(t, address, in)
				if n, want := strings.Count(out, "\r\n"), 2*each; n != want {
					t.Errorf("%d answers, want %d", n, want)
				}
				if !strings.HasSuffix(out, fmt.Sprintf(":%d\r\n", each)) {
					t.Errorf("the last answer is %q", out[max(0, len(out)-20):])
				}
			})
		}
		all.Wait()
		if v, _ := s.store.get([]byte("all")); string(v) != fmt.Sprint(conns*each) {
			t.Errorf("all is %s, want %d", v, conns*each)
		}
	})
}

// TestSlowReader asks for far more than the sockets hold before it reads
// anything: the server must keep little, serve others, and lose nothing.
// Promise: examples/memory-peer-occupy
func TestSlowReader(t *testing.T) {
	overModes(t, func(t *testing.T, s *server, address string) {
		value := bytes.Repeat([]byte("0123456789"), 20_000)
		if err := s.store.set([]byte("k"), value); err != nil {
			t.Fatal(err)
		}
		gets := 300 // 60 MB
		if testing.Short() {
			gets = 60
		}
		slow := dial(t, address)
		_ = slow.SetReadBuffer(64 << 10)
		if _, err := io.WriteString(slow, strings.Repeat("GET k\r\n", gets)+"QUIT\r\n"); err != nil {
			t.Fatal(err)
		}
		if out := session(t, address, "PING\r\n"); out != "+PONG\r\n" {
			t.Errorf("another connection was answered %q", out)
		}
		want := bulk(nil, value)
		got := make([]byte, len(want))
		for i := range gets {
			if _, err := io.ReadFull(slow, got); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("answer %d: %.20q, %v", i, got, err)
			}
		}
		if rest, err := io.ReadAll(slow); string(rest) != "+OK\r\n" || err != nil {
			t.Errorf("at the end: %q, %v", rest, err)
		}
	})
}

// TestMemory fills the store, which refuses more and takes it again when there
// is room.
// Promise: examples/memory-peer-occupy
func TestMemory(t *testing.T) {
	s := newStore(1000)
	value := make([]byte, 500)
	for _, err := range []error{s.set([]byte("a"), value), s.set([]byte("a"), value)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.set([]byte("b"), value); !errors.Is(err, errFull) {
		t.Errorf("set beyond the limit: %v", err)
	}
	if _, ok := s.get([]byte("b")); ok {
		t.Error("what was refused is there")
	}
	if !s.del([]byte("a")) || s.bytes.Load() != 0 {
		t.Errorf("%d bytes are left", s.bytes.Load())
	}
	if err := s.set([]byte("b"), value); err != nil {
		t.Error(err)
	}
}

// TestWrongInput sends what is no request: the server answers with an error,
// ends that connection, and serves the next one.
// Promise: examples/memory-peer-occupy
func TestWrongInput(t *testing.T) {
	overModes(t, func(t *testing.T, _ *server, address string) {
		for _, in := range []string{
			"*x\r\n", "*1\r\n+PING\r\n", "*1\r\n$x\r\n", "*1\r\n$4\r\nPINGPONG\r\n", "*99999\r\n",
			strings.Repeat("x", maxLine+1),
		} {
			c := dial(t, address)
			_, _ = io.WriteString(c, in)
			line, err := bufio.NewReader(c).ReadString('\n')
			if !strings.HasPrefix(line, "-ERR protocol error: ") {
				t.Errorf("%.20q: %q, %v", in, line, err)
			}
			_ = c.Close()
		}
		if out := session(t, address, "PING\r\n"); out != "+PONG\r\n" {
			t.Errorf("afterwards: %q", out)
		}
	})
}

// TestTrickle has peers that send a byte now and then, of a request that never becomes
// whole: they keep no connection by that.
// Promise: examples/peer-cannot-hold
func TestTrickle(t *testing.T) {
	overModesWithIdle(t, 50*time.Millisecond, func(t *testing.T, _ *server, address string) {
		for _, in := range []string{"x", "*1\r\n$1000000\r\n"} {
			c := dial(t, address)
			over := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, c)
				over <- err
			}()
			_, _ = io.WriteString(c, in) // slow machines may be late
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for ended := false; !ended; {
				select {
				case err := <-over:
					ended = true
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%q: the connection goes on", in)
					}
				case <-tick.C:
					_, _ = io.WriteString(c, "x") // fails once the server has closed
				}
			}
		}
	})
}
