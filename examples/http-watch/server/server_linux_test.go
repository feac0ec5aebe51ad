// SPDX-License-Identifier: MIT

package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/watch"
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

// overBackends runs a test with a server on each backend that can be had.
func overBackends(t *testing.T, idle time.Duration, test func(t *testing.T, s *Server)) {
	for _, b := range []watch.Mode{watch.ModeEpoll, watch.ModeRing} {
		t.Run(b.String(), func(t *testing.T) {
			t.Setenv(features.EnvBackend, b.String())
			s, err := New(Config{Addr: "127.0.0.1:0", Idle: idle})
			if b == watch.ModeRing && err != nil {
				ringtest.NeedKernel(t, "deferred task work", "6.1")
				if errors.Is(err, features.ErrForbidden) || errors.Is(err, errors.ErrUnsupported) {
					t.Skipf("needs io_uring: %v", err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- s.l.Run(t.Context()) }()
			test(t, s)
			_ = s.l.Post(s.shutdown)
			if err := <-done; err != nil {
				t.Error(err)
			}
			s.Close()
		})
	}
}

// client is a connection to the server.
type client struct {
	*testing.T
	*net.TCPConn
	r *bufio.Reader
}

func dial(t *testing.T, s *Server) *client {
	t.Helper()
	c, err := net.Dial("tcp", s.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(ringtest.Patience))
	return &client{t, c.(*net.TCPConn), bufio.NewReader(c)}
}

func (c *client) send(s string) {
	c.Helper()
	if _, err := io.WriteString(c.TCPConn, s); err != nil {
		c.Fatal(err)
	}
}

// answer wants an answer with a code and, if it is 200, a body.
func (c *client) answer(code int, body []byte) *http.Response {
	c.Helper()
	r, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.Fatal(err)
	}
	got, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != code || code == 200 && !bytes.Equal(got, body) {
		c.Fatalf("answer %s with %d bytes, %v; want %d with %d", r.Status, len(got), err, code, len(body))
	}
	if _, err := http.ParseTime(r.Header.Get("Date")); err != nil {
		c.Error(err)
	}
	return r
}

// ended wants the connection to end without an error.
func (c *client) ended() {
	c.Helper()
	if b, err := io.ReadAll(c.r); len(b) > 0 || err != nil {
		c.Fatalf("%q, %v instead of the end", b, err)
	}
}

func TestKeepAlive(t *testing.T) {
	overBackends(t, time.Minute, func(t *testing.T, s *Server) {
		c := dial(t, s)
		for range 3 {
			c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			c.answer(200, greeting)
			c.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
			if r := c.answer(200, greeting); r.Header.Get("Connection") != "keep-alive" {
				t.Error("the connection is not said to be kept")
			}
			c.send("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n")
			c.answer(404, nil)
			c.send("BREW / HTTP/1.1\r\nHost: a\r\n\r\n")
			c.answer(405, nil)
		}
		c.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if r := c.answer(200, greeting); !r.Close {
			t.Error("the connection is not said to be closed")
		}
		c.ended()
		c = dial(t, s)
		c.send("GET / HTTP/1.0\r\n\r\n")
		c.answer(200, greeting)
		c.ended()
	})
}

// TestPipeline sends requests with bodies in pieces of different sizes.
func TestPipeline(t *testing.T) {
	requests, n := "", 40
	for i := range n {
		body := strings.Repeat("b", i*i)
		requests += fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	overBackends(t, time.Minute, func(t *testing.T, s *Server) {
		for _, size := range []int{1, 7, 100, 4096, len(requests)} {
			c := dial(t, s)
			var wg sync.WaitGroup
			wg.Go(func() {
				for rest := requests; len(rest) > 0; {
					piece := rest[:min(size, len(rest))]
					if _, err := io.WriteString(c, piece); err != nil {
						t.Error(err)
						return
					}
					rest = rest[len(piece):]
				}
				_ = c.CloseWrite()
			})
			for range n {
				c.answer(200, greeting)
			}
			c.ended()
			wg.Wait()
		}
	})
}

func TestHead(t *testing.T) {
	overBackends(t, time.Minute, func(t *testing.T, s *Server) {
		c := dial(t, s)
		c.send("HEAD /large HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
		r, err := http.ReadResponse(c.r, &http.Request{Method: "HEAD"})
		if err != nil || r.ContentLength != int64(len(large)) {
			t.Fatalf("%v, %v", r, err)
		}
		c.answer(200, greeting)
	})
}

func TestExpect(t *testing.T) {
	overBackends(t, time.Minute, func(t *testing.T, s *Server) {
		c := dial(t, s)
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
		if r, err := http.ReadResponse(c.r, nil); err != nil || r.StatusCode != 100 {
			t.Fatalf("%v, %v", r, err)
		}
		c.send("abcGET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.answer(200, greeting)
		c.answer(200, greeting)
	})
}

// TestRefused wants an answer and a close for what is no request, also when
// more follows that the server does not read.
func TestRefused(t *testing.T) {
	more := strings.Repeat("and more ", 100<<10)
	overBackends(t, time.Minute, func(t *testing.T, s *Server) {
		for in, code := range map[string]int{
			"nonsense\r\n\r\n":          400,
			"\x16\x03\x01\x02":          400,
			"GET / HTTP/1.1\r\n\r\n":    400,
			"GET / HTTP/3.0\r\n\r\n":    505,
			"GET /" + more:              431,
			"nonsense\r\n\r\n" + more:   400,
			"GET / HTTP/1.1\r\nHost: a": 400, // the end comes instead of the rest
			"POST / HTTP/1.0\r\nContent-Length: 10000000\r\n\r\n":               413,
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0": 411,
		} {
			c := dial(t, s)
			var wg sync.WaitGroup
			wg.Go(func() {
				c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n" + in)
				_ = c.CloseWrite()
			})
			c.answer(200, greeting)
			if r := c.answer(code, nil); !r.Close {
				t.Errorf("%.20q: the connection is not said to be closed", in)
			}
			c.ended()
			wg.Wait()
		}
	})
}

// TestSlowReader asks for much without reading, and wants the server to hold
// little, to serve others, and to send all once it is read.
// Promise: examples/memory-peer-occupy
func TestSlowReader(t *testing.T) {
	overBackends(t, time.Minute, func(t *testing.T, s *Server) {
		slow := dial(t, s)
		request := "GET /large HTTP/1.1\r\nHost: a\r\nPadding: " + strings.Repeat("p", 4000) + "\r\n\r\n"
		const batch = 100 // six buffers of input, 25 MiB of output
		var wg sync.WaitGroup
		wg.Go(func() { slow.send(strings.Repeat(request, batch)) })
		most := 0
		for end := time.Now().Add(ringtest.Patience); most == 0 && time.Now().Before(end); {
			most = s.held()
		}
		if most == 0 || most > maxOut+2*len(large)+2*(bufferSize+maxHead) {
			t.Errorf("the server holds %d bytes", most)
		}
		other := dial(t, s)
		other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		other.answer(200, greeting)
		for range batch / 10 {
			slow.answer(200, large)
		}
		if n := s.held(); n > maxOut+2*len(large)+2*(bufferSize+maxHead) {
			t.Errorf("the server holds %d bytes later", n)
		}
		for range batch - batch/10 {
			slow.answer(200, large)
		}
		wg.Wait()
		slow.send(request)
		slow.answer(200, large)
		if n := s.held(); n != 0 {
			t.Errorf("the server holds %d bytes in the end", n)
		}
	})
}

// held returns how much memory a connection takes at most for input and output.
func (s *Server) held() int {
	answer := make(chan int)
	_ = s.l.Post(func() {
		most := 0
		for c := range s.conns {
			most = max(most, cap(c.in)+cap(c.out))
		}
		answer <- most
	})
	return <-answer
}

// Promise: examples/peer-cannot-hold
func TestIdle(t *testing.T) {
	overBackends(t, 20*time.Millisecond, func(t *testing.T, s *Server) {
		dial(t, s).ended()
		// What comes when the time is over is answered with a reset: on a slow
		// machine that may be the beginning of a request.
		for end := time.Now().Add(ringtest.Patience); ; {
			c := dial(t, s)
			_, err := io.WriteString(c.TCPConn, "GET / HTTP/1.1\r\nHo")
			b, readErr := io.ReadAll(c.r)
			if err == nil && readErr == nil && len(b) == 0 {
				return
			}
			reset := errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(readErr, syscall.ECONNRESET)
			if !reset || len(b) > 0 || time.Now().After(end) {
				t.Fatalf("%v, then %q, %v instead of the end", err, b, readErr)
			}
		}
	})
}

// TestShutdown wants requests that have come to be answered before the end.
func TestShutdown(t *testing.T) {
	overBackends(t, time.Minute, func(t *testing.T, s *Server) {
		resting, busy := dial(t, s), dial(t, s)
		resting.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resting.answer(200, greeting)
		busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na")
		busy.answer(200, greeting)
		busy.answer(200, greeting)
		_ = s.l.Post(func() {
			s.grace = ringtest.Patience // for slow machines
			s.shutdown()
		})
		resting.ended()
		// The kernel may hold the listener until the turn after.
		for end := time.Now().Add(ringtest.Patience); ; {
			c, err := net.Dial("tcp", s.addr.String())
			if err != nil {
				break
			}
			if _ = c.Close(); time.Now().After(end) {
				t.Fatal("the server still listens")
			}
		}
		busy.send("bcGET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if r := busy.answer(200, greeting); !r.Close {
			t.Error("the connection is not said to be closed")
		}
		busy.ended()
	})
}

// TestClients has the client of net/http ask, from many goroutines.
func TestClients(t *testing.T) {
	overBackends(t, time.Minute, func(t *testing.T, s *Server) {
		transport := &http.Transport{MaxIdleConnsPerHost: 10}
		defer transport.CloseIdleConnections()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				for range 50 {
					path, want := "/", greeting
					if i == 0 {
						path, want = "/large", large
					}
					r, err := (&http.Client{Transport: transport}).Get("http://" + s.addr.String() + path)
					if err != nil {
						t.Error(err)
						return
					}
					got, err := io.ReadAll(r.Body)
					_ = r.Body.Close()
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
					}
				}
			})
		}
		wg.Wait()
	})
}
