// SPDX-License-Identifier: MIT

package sockets

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
)

// engine is one of this module's implementations of servers and clients.
type engine struct {
	name string
	// serve starts an echo server with the settings of lc, and reports how each connection ended.
	serve func(t *testing.T, address string, lc net.ListenConfig, ended chan<- error) string
	dial  func(d net.Dialer, address string) (net.Conn, error)
}

// engines returns all engines that are available here.
func engines(t *testing.T) (all []engine) {
	t.Helper()
	for _, mode := range modes {
		s, err := unet.NewSystem(unet.Options{Mode: mode})
		if err != nil {
			mayLack(t, err)
			continue
		}
		all = append(all, engine{mode.String(), unetEcho(s), func(d net.Dialer, address string) (net.Conn, error) {
			ours := unet.Dialer{System: s, Timeout: d.Timeout, KeepAlive: d.KeepAlive, KeepAliveConfig: d.KeepAliveConfig, Control: d.Control}
			return ours.Dial("tcp", address)
		}})
	}
	for _, mode := range eventModes {
		o := event.Options{Mode: mode}
		if s, err := event.Listen("tcp", "127.0.0.1:0", event.Handler{}, o); err != nil {
			mayLack(t, err)
			continue
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		all = append(all, engine{"event-" + mode.String(), callbackEcho(o), func(d net.Dialer, address string) (net.Conn, error) {
			return d.Dial("tcp", address)
		}})
	}
	return all
}

// mayLack skips an engine if io_uring cannot be used.
func mayLack(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("RINGSIDE_MUST") == "io_uring" {
		t.Fatalf("io_uring must work here: %v", err)
	}
	t.Logf("skip: needs io_uring: %v", err)
}

// eachEngine runs a test with all engines, concurrently.
func eachEngine(t *testing.T, f func(t *testing.T, e engine)) {
	for _, e := range engines(t) {
		t.Run(e.name, func(t *testing.T) { t.Parallel(); f(t, e) })
	}
}

func unetEcho(s *unet.System) func(*testing.T, string, net.ListenConfig, chan<- error) string {
	return func(t *testing.T, address string, lc net.ListenConfig, ended chan<- error) string {
		t.Helper()
		ours := unet.ListenConfig{System: s, KeepAlive: lc.KeepAlive, KeepAliveConfig: lc.KeepAliveConfig, Control: lc.Control}
		l, err := ours.Listen(context.Background(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				all.Go(func() {
					defer c.Close()
					ended <- echoes(c)
				})
			}
		})
		t.Cleanup(func() { _ = l.Close(); all.Wait() })
		return l.Addr().String()
	}
}

// echoes echoes until the connection ends, and returns the reason.
func echoes(c net.Conn) error {
	p := make([]byte, 16<<10)
	for {
		n, err := c.Read(p)
		if err != nil {
			return err
		}
		if _, err := c.Write(p[:n]); err != nil {
			return err
		}
	}
}

func callbackEcho(o event.Options) func(*testing.T, string, net.ListenConfig, chan<- error) string {
	return func(t *testing.T, address string, lc net.ListenConfig, ended chan<- error) string {
		t.Helper()
		o := o
		o.ListenConfig = &lc
		s, err := event.Listen("tcp", address, event.Handler{
			OnData:  func(c *event.Conn, p []byte) { _, _ = c.Write(p) },
			OnClose: func(_ *event.Conn, err error) { ended <- err },
		}, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s.Addr().String()
	}
}

// exchanges sends data over several connections at once, and checks that it comes back.
func exchanges(t *testing.T, e engine, address string, conns, size int) {
	var all sync.WaitGroup
	for i := range conns {
		all.Go(func() {
			c, err := e.dial(net.Dialer{}, address)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			want := make([]byte, size)
			_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(want)
			sent := make(chan error, 1)
			go func() {
				_, err := c.Write(want)
				sent <- errors.Join(err, c.(interface{ CloseWrite() error }).CloseWrite())
			}()
			got, err := io.ReadAll(c)
			if err := errors.Join(err, <-sent); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d of %d bytes came back, or wrong data: %v", len(got), len(want), err)
			}
		})
	}
	all.Wait()
}

// TestBadWire exchanges data over a link that delays, loses, duplicates and reorders packets.
// Promise: unet/byte-order-right
func TestBadWire(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		newWire(t, &wire{delay: time.Millisecond, loss: 0.01, double: 0.01, overtaken: 0.02})
		eachEngine(t, func(t *testing.T, e engine) {
			ended := make(chan error, 100)
			address := e.serve(t, here.String()+":0", net.ListenConfig{}, ended)
			exchanges(t, e, throughWire(t, address), 8, 100_000)
			for range 8 {
				if err := soon(t, "the end of a connection", ended); err != io.EOF {
					t.Errorf("a connection ended with %v", err)
				}
			}
		})
	})
}

// TestNetem is TestBadWire with the kernel's own network emulator.
func TestNetem(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		out, err := exec.Command("tc", "qdisc", "add", "dev", "lo", "root", "netem",
			"delay", "2ms", "1ms", "loss", "1%", "duplicate", "1%", "reorder", "2%").CombinedOutput()
		if err != nil {
			t.Skipf("needs tc (package iproute2) and a kernel with sch_netem: %v: %s", err, out)
		}
		eachEngine(t, func(t *testing.T, e engine) {
			address := e.serve(t, "127.0.0.1:0", net.ListenConfig{}, make(chan error, 100))
			exchanges(t, e, address, 8, 100_000)
		})
	})
}

// TestResetOnTheWire turns a packet in transit into a reset. Both sides must get an error while a
// call waits, and other connections must not be affected.
func TestResetOnTheWire(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		for _, what := range []string{"question", "answer"} {
			t.Run(what, func(t *testing.T) {
				w := newWire(t, &wire{})
				for _, e := range engines(t) {
					resetOne(t, w, e, what)
				}
			})
		}
	})
}

func resetOne(t *testing.T, w *wire, e engine, what string) {
	ended := make(chan error, 10)
	listens := e.serve(t, here.String()+":0", net.ListenConfig{}, ended)
	port := int32(netip.MustParseAddrPort(listens).Port())
	c, bystander := connected(t, e, throughWire(t, listens), net.Dialer{}), connected(t, e, throughWire(t, listens), net.Dialer{})
	if what == "question" {
		w.resetTo.Store(port)
	} else {
		w.resetOff.Store(port)
	}
	if err := ask(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: the client's call ended with %v", e.name, err)
	}
	if err := soon(t, "the end at the server", ended); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%s: the server's connection ended with %v", e.name, err)
	}
	if err := ask(bystander); err != nil {
		t.Errorf("%s: another connection: %v", e.name, err)
	}
}

// connected returns a connection that has already exchanged data.
func connected(t *testing.T, e engine, address string, d net.Dialer) net.Conn {
	t.Helper()
	c, err := e.dial(d, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if err := ask(c); err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(c net.Conn) error {
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

// TestPeerVanishes cuts the wire. TestInterfaceGoesDown also removes the interface.
func TestPeerVanishes(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		w := newWire(t, &wire{})
		vanish(t, func() { w.cut.Store(true) })
	})
}

func TestInterfaceGoesDown(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		newWire(t, &wire{})
		vanish(t, func() { down(t, wireName) })
	})
}

// vanish severs connections of every engine. Deadlines, keep-alive and the user timeout must end
// the waiting calls.
func vanish(t *testing.T, sever func()) {
	var checks []func()
	for _, e := range engines(t) {
		checks = append(checks, vanishing(t, e))
	}
	sever()
	var all sync.WaitGroup
	for _, check := range checks {
		all.Go(check)
	}
	all.Wait()
}

// vanishing opens connections and returns the checks to run once no packet gets through.
func vanishing(t *testing.T, e engine) (check func()) {
	keep := net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 1}
	ended := make(chan error, 10)
	// The server's last byte may not have been acknowledged yet. Then there are no
	// probes, and the user timeout has to end the connection.
	lc := net.ListenConfig{KeepAliveConfig: keep, Control: userTimeout(time.Second)}
	address := throughWire(t, e.serve(t, here.String()+":0", lc, ended))
	silent := connected(t, e, address, net.Dialer{KeepAlive: -1})
	kept := connected(t, e, address, net.Dialer{KeepAliveConfig: keep})
	hasty := connected(t, e, address, net.Dialer{KeepAlive: -1, Control: userTimeout(time.Second)})
	return func() {
		var all sync.WaitGroup
		all.Go(func() {
			_ = silent.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: a read with a deadline: %v", e.name, err)
			}
		})
		all.Go(func() {
			if _, err := kept.Read(make([]byte, 1)); !gone(err) {
				t.Errorf("%s: a read with keep-alive: %v", e.name, err)
			}
		})
		all.Go(func() {
			if err := ask(hasty); !gone(err) {
				t.Errorf("%s: a read with a user timeout: %v", e.name, err)
			}
		})
		all.Go(func() {
			c, err := e.dial(net.Dialer{Timeout: 100 * time.Millisecond}, address)
			if ne, ok := errors.AsType[net.Error](err); err == nil || !gone(err) && !(ok && ne.Timeout()) {
				t.Errorf("%s: dial: %v, %v", e.name, c, err)
			}
		})
		for range 3 {
			if err := soon(t, "the end at the server", ended); !gone(err) {
				t.Errorf("%s: the server's connection ended with %v", e.name, err)
			}
		}
		all.Wait()
	}
}

// userTimeout returns a Control function that sets TCP_USER_TIMEOUT.
func userTimeout(d time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if err := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
		}); err != nil {
			return err
		}
		return err
	}
}

// gone reports whether the kernel gave up on the peer.
func gone(err error) bool {
	return errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH)
}

// soon returns the value that arrives, or fails the test.
func soon[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Errorf("%s: nothing after %v", what, patience)
	}
	return v
}
