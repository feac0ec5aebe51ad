// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// testPatience is how long a test waits for an event that must happen.
const testPatience = time.Minute

// overModes runs test with each backend.
func overModes(t *testing.T, test func(t *testing.T, o Options)) {
	t.Helper()
	for _, m := range []struct {
		name string
		o    Options
	}{
		{"loops", Options{Mode: ModeRing, Loops: 3, Restrict: true, wait: waitNetpoller}},
		{"thread", Options{Mode: ModeRing, Restrict: true, wait: waitThread}},
		{"epoll", Options{Mode: ModeEpoll}},
		{"epoll-loops", Options{Mode: ModeEpoll, Loops: 3}},
		{"net", Options{Mode: ModeNet}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if !ringtest.Long() && m.name == "epoll-loops" {
				t.Skip("makes the same system calls as the other modes: only with RINGSIDE_LONG=1")
			}
			switch m.o.Mode {
			case ModeRing:
				needRing(t)
				if m.o.wait == waitThread {
					ringtest.NeedKernel(t, "deferred task work", "6.1")
				}
			case ModeEpoll:
				needEpoll(t)
			}
			test(t, m.o)
		})
	}
}

// needRing skips a test where io_uring lacks a feature that a server needs.
func needRing(t testing.TB) {
	t.Helper()
	ringtest.NeedKernel(t, "multishot receive", "6.0")
}

// needEpoll skips a test on systems without epoll.
func needEpoll(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs epoll")
	}
}

// start starts a server on the loopback interface; the end of the test closes it.
func start(t testing.TB, h Handler, o Options) *Server {
	t.Helper()
	return startOn(t, "tcp", "127.0.0.1:0", h, o)
}

func startOn(t testing.TB, network, address string, h Handler, o Options) *Server {
	t.Helper()
	s, err := Listen(network, address, h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != s.Err() {
			t.Errorf("Close returned %v, Err %v", err, s.Err())
		}
		if n := s.Stats().Open; n != 0 {
			t.Errorf("%d connections are open after Close", n)
		}
	})
	return s
}

// dial connects to a server; the end of the test closes the connection.
func dial(t testing.TB, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial(s.Addr().Network(), s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testPatience))
	return c
}

func socketPath(t testing.TB) string { return filepath.Join(t.TempDir(), "s") }

// echoes is a handler that sends all data back.
func echoes() Handler {
	return Handler{OnData: func(c *Conn, p []byte) { _, _ = c.Write(p) }}
}

func random(n int, seed uint64) []byte {
	p := make([]byte, n)
	var key [32]byte
	binary.NativeEndian.PutUint64(key[:], seed)
	_, _ = rand.NewChaCha8(key).Read(p)
	return p
}

// exchange sends p, reads as many bytes, and compares.
func exchange(t testing.TB, c net.Conn, p []byte) {
	t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if _, err := c.Write(p); err != nil {
			t.Errorf("write: %v", err)
		}
	})
	got := make([]byte, len(p))
	if n, err := io.ReadFull(c, got); err != nil {
		t.Errorf("read %d of %d bytes: %v", n, len(p), err)
	} else if !bytes.Equal(got, p) {
		t.Errorf("%d bytes came back changed", len(p))
	}
}

// exact reads exactly want.
func exact(t testing.TB, from io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(from, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d of %d bytes, equal %v: %v", n, len(want), bytes.Equal(got, want), err)
	}
}

// await waits until cond holds.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(testPatience); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("not true after %v: %s", testPatience, what)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// receive waits for a value.
func receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(testPatience):
		t.Fatalf("no %s after %v", what, testPatience)
		panic("unreachable")
	}
}
