// SPDX-License-Identifier: MIT

package unet_test

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// TestAcceptWithoutDescriptors takes away all descriptors: Accept says so each
// time it is called, and serves the same connection when there are some again.
func TestAcceptWithoutDescriptors(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		l := listen(t, s, "tcp")
		c, err := s.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var before syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		var errs []error
		for range 3 {
			_, err := l.Accept()
			errs = append(errs, err)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		for _, err := range errs {
			ne, ok := err.(interface{ Temporary() bool })
			if !errors.Is(err, syscall.EMFILE) || !ok || !ne.Temporary() {
				t.Fatalf("accept without descriptors: %v", err)
			}
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = accepted.Close()
	})
}

// TestManyConnections opens and closes connections in many ways at once; the
// leak checks of the package look at what is left.
func TestManyConnections(t *testing.T) {
	total := 3000
	if testing.Short() {
		total = 300
	}
	eachMode(t, func(t *testing.T, s *unet.System) {
		l := listen(t, s, "tcp")
		var all sync.WaitGroup
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				all.Go(func() {
					_, _ = io.Copy(io.Discard, c)
					_ = c.Close()
				})
			}
		})
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for i := range total / 8 {
					c, err := s.Dial("tcp", l.Addr().String())
					if err != nil {
						t.Error(err)
						return
					}
					if i%2 == 0 {
						_, _ = c.Write([]byte("x"))
					}
					_ = c.(tcpMethods).SetLinger(0) // or the ports run out
					_ = c.Close()
				}
			})
		}
		clients.Wait()
		_ = l.Close()
		all.Wait()
	})
}

// TestDroppedConnectionsAreClosed drops connections without Close, with and
// without a deadline.
func TestDroppedConnectionsAreClosed(t *testing.T) {
	for _, mode := range modes()[1:] { // package net's need no test
		t.Run(mode.String(), func(t *testing.T) {
			l := listen(t, newSystem(t, mode), "tcp")
			got := make(chan net.Conn, 2)
			go func() {
				for range 2 {
					c, _ := l.Accept()
					got <- c
				}
			}()
			d, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			e, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			_ = (<-got).SetDeadline(time.Now().Add(time.Hour))
			<-got
			for _, c := range []net.Conn{d, e} {
				ended := start(func() error { _, err := c.Read(make([]byte, 1)); return err })
				for end := time.Now().Add(patience); ; runtime.GC() {
					select {
					case err = <-ended:
					default:
						if time.Now().After(end) {
							t.Fatal("a dropped connection is still open")
						}
						continue
					}
					break
				}
				if err != io.EOF {
					t.Errorf("a dropped connection ended with %v", err)
				}
			}
		})
	}
}

// TestPeerVanishes resets the connection under calls that wait.
func TestPeerVanishes(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		a, b := pair(t, s, "tcp")
		read := start(func() error { _, err := a.Read(make([]byte, 1)); return err })
		write := start(func() error {
			for {
				if _, err := a.Write(make([]byte, 1<<20)); err != nil {
					return err
				}
			}
		})
		_ = b.(tcpMethods).SetLinger(0)
		_ = b.Close()
		if err := soon(t, "a read", read); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			t.Errorf("read: %v", err)
		}
		if err := soon(t, "a write", write); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write: %v", err)
		}
		if _, err := a.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read afterwards: %v", err)
		}
	})
}
