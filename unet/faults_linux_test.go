// SPDX-License-Identifier: MIT

package unet_test

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// TestAcceptWithoutDescriptors uses up all descriptors: each Accept returns the error, and
// accepts the same connection when descriptors are free again.
// Promise: unet/server-ran-descriptors
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

// TestManyConnections opens and closes connections in many ways at once; the leak checks of
// the package run afterwards.
func TestManyConnections(t *testing.T) {
	total := ringtest.Rounds(3000, 1000)
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
					_ = c.(tcpMethods).SetLinger(0) // otherwise the ports run out
					_ = c.Close()
				}
			})
		}
		clients.Wait()
		_ = l.Close()
		all.Wait()
	})
}

// TestDroppedConnectionsAreClosed drops connections without Close, with and without a
// deadline.
func TestDroppedConnectionsAreClosed(t *testing.T) {
	for _, mode := range modes()[1:] { // those of package net need no test
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

// TestPeerVanishes resets the connection while calls wait.
// Promise: unet/close-ends-waiting
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

// TestServerWithoutDescriptors uses up all descriptors of a web server that waits in
// Accept, and makes connections: neither the server nor the driver may spin, and all
// connections are served when descriptors are free again.
// Promise: unet/server-ran-descriptors
func TestServerWithoutDescriptors(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		l := listen(t, s, "tcp")
		server := &http.Server{ErrorLog: log.New(io.Discard, "", 0)}
		done := start(func() error { return server.Serve(l) })
		ask(t, rawClient(t), l.Addr()) // Accept has succeeded, and waits again
		var clients []int
		for range 5 {
			clients = append(clients, rawClient(t))
		}
		release := useUp(t)
		for _, fd := range clients {
			if err := connectRaw(fd, l.Addr()); err != nil {
				release()
				t.Fatal(err)
			}
		}
		used := quietest(0.5, 200*time.Millisecond)
		release()
		if used > 0.5 {
			t.Errorf("without descriptors the process uses %.0f%% of a processor", used*100)
		}
		for _, fd := range clients {
			ask(t, fd, nil)
		}
		_ = server.Close()
		if err := soon(t, "the server", done); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// rawClient returns a socket that is not yet connected.
func rawClient(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func connectRaw(fd int, to net.Addr) error {
	a := to.(*net.TCPAddr)
	return syscall.Connect(fd, &syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())})
}

// ask sends a request, after connecting if there is an address, and closes the socket.
func ask(t *testing.T, fd int, to net.Addr) {
	t.Helper()
	if to != nil {
		if err := connectRaw(fd, to); err != nil {
			t.Fatal(err)
		}
	}
	f := os.NewFile(uintptr(fd), "client")
	defer f.Close()
	tv := syscall.NsecToTimeval(patience.Nanoseconds())
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(f, "GET / HTTP/1.0\r\n\r\n")
	if answer, err := io.ReadAll(f); err != nil || !strings.Contains(string(answer), " 404 ") {
		t.Errorf("%q, %v", answer, err)
	}
}

// useUp opens descriptors until none are left, and returns a function that closes them.
func useUp(t *testing.T) (release func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 200, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for {
		fd, err := syscall.Dup(2)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	return func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
}

// quietest measures the share of a processor that the process uses, in up to 25 periods. It
// stops when one is below enough, and returns the smallest. A goroutine that spins shows in
// every period; background work of the runtime ends.
func quietest(enough float64, span time.Duration) float64 {
	least := 1e9
	for n := 0; n < 25 && least >= enough; n++ {
		begin, before := time.Now(), cpuTime()
		time.Sleep(span)
		least = min(least, float64(cpuTime()-before)/float64(time.Since(begin)))
	}
	return least
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
