// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
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
func overBackends(t *testing.T, idle time.Duration, test func(t *testing.T, s *server, done <-chan error)) {
	for _, b := range []watch.Mode{watch.ModeEpoll, watch.ModeRing} {
		t.Run(b.String(), func(t *testing.T) {
			t.Setenv(features.EnvBackend, b.String())
			s, err := newServer("127.0.0.1:0", idle)
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
			test(t, s, done)
			_ = s.l.Post(s.shutdown)
			if err := <-done; err != nil {
				t.Error(err)
			}
			s.close()
		})
	}
}

func dial(t *testing.T, s *server) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * ringtest.Patience))
	return c.(*net.TCPConn)
}

// TestEcho sends much more than the sockets hold before it reads anything.
func TestEcho(t *testing.T) {
	overBackends(t, time.Minute, func(t *testing.T, s *server, _ <-chan error) {
		var wg sync.WaitGroup
		for i := range 10 {
			c := dial(t, s)
			wg.Go(func() {
				if err := echoes(c, uint64(i)); err != nil {
					t.Errorf("connection %d: %v", i, err)
				}
			})
		}
		wg.Wait()
	})
}

func echoes(c *net.TCPConn, seed uint64) error {
	want := make([]byte, 8<<20>>(seed%10))
	rng := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = rng.Read(want)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		sent <- errors.Join(err, c.CloseWrite())
	}()
	got, err := io.ReadAll(c)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes came back of %d, or others", len(got), len(want))
	}
	return nil
}

// TestSlowReader sends until the server takes no more, and wants it to hold one
// buffer, to serve others, and to go on when the peer reads.
func TestSlowReader(t *testing.T) {
	overBackends(t, time.Minute, func(t *testing.T, s *server, _ <-chan error) {
		slow := dial(t, s)
		sent, held := int64(0), 0
		for held == 0 { // until the server takes no more
			_ = slow.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			n, err := io.Copy(slow, endless{})
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("sent %d: %v", sent+n, err)
			}
			sent += n
			held = s.held()
		}
		if held > 2*bufferSize {
			t.Errorf("the server holds %d bytes", held)
		}
		if err := echoes(dial(t, s), 9); err != nil {
			t.Error(err)
		}
		_ = slow.CloseWrite()
		if n, err := io.Copy(io.Discard, slow); n != sent || err != nil {
			t.Errorf("%d bytes came back of %d: %v", n, sent, err)
		}
	})
}

// held returns how much memory the output of a connection takes at most.
func (s *server) held() int {
	answer := make(chan int)
	_ = s.l.Post(func() {
		most := 0
		for c := range s.conns {
			most = max(most, cap(c.out))
		}
		answer <- most
	})
	return <-answer
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func TestIdle(t *testing.T) {
	overBackends(t, 20*time.Millisecond, func(t *testing.T, s *server, _ <-chan error) {
		if n, err := dial(t, s).Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("read %d, %v on an idle connection, want the end", n, err)
		}
	})
}

// TestSignal ends a server that has a connection.
func TestSignal(t *testing.T) {
	t.Setenv(features.EnvBackend, "auto")
	s, err := newServer("127.0.0.1:0", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.l.OnSignal(syscall.SIGTERM, s.shutdown)
	done := make(chan error, 1)
	go func() { done <- s.l.Run(t.Context()) }()
	c := dial(t, s)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("read %d, %v after the end", n, err)
	}
}
