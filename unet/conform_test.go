// SPDX-License-Identifier: MIT

package unet_test

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// TestErrorsAreThoseOfNet makes the same calls on every implementation and compares the
// results with those of package net.
// Promise: unet/net-s-results
func TestErrorsAreThoseOfNet(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			var want []string
			for _, mode := range modes() {
				got := errorsOf(t, newSystem(t, mode), network)
				if want == nil {
					want = got
					continue
				}
				for i := range want {
					if got[i] != want[i] {
						t.Errorf("%v: result %d is\n\t%s\nand that of package net is\n\t%s", mode, i, got[i], want[i])
					}
				}
			}
		})
	}
}

func errorsOf(t *testing.T, s *unet.System, network string) []string {
	var all []string
	note := func(n int, err error) {
		all = append(all, strings.ReplaceAll(describe(err), "\n", " ")+" n="+string(rune('0'+min(n, 9))))
	}
	past, p := time.Unix(1, 0), make([]byte, 8)

	a, b := pair(t, s, network)
	note(a.Read(nil))
	note(a.Write(nil))
	_ = a.SetDeadline(past)
	note(a.Read(p))
	note(a.Read(nil))
	note(a.Write(p))
	note(a.Write(nil))
	_ = a.SetDeadline(time.Time{})
	note(b.Write(p[:3]))
	note(a.Read(p))
	note(0, b.(interface{ CloseWrite() error }).CloseWrite())
	note(b.Write(p))
	note(a.Read(p))
	note(a.Read(p))
	note(a.Read(nil))
	note(0, a.(interface{ CloseRead() error }).CloseRead())
	note(a.Read(p))
	note(0, a.Close())
	note(0, a.Close())
	note(a.Read(p))
	note(a.Read(nil))
	note(a.Write(p))
	note(0, a.SetDeadline(past))
	note(0, a.SetReadDeadline(past))
	note(0, a.SetWriteDeadline(past))
	note(0, a.(interface{ CloseRead() error }).CloseRead())
	note(0, a.(interface{ CloseWrite() error }).CloseWrite())
	note(0, a.(interface{ SetReadBuffer(int) error }).SetReadBuffer(4096))
	_, err := a.(interface{ File() (*os.File, error) }).File()
	note(0, err)
	if tcp, ok := a.(tcpMethods); ok {
		note(0, tcp.SetNoDelay(true))
		note(0, tcp.SetLinger(1))
		note(0, tcp.SetKeepAlive(true))
		note(0, tcp.SetKeepAlivePeriod(time.Second))
	}

	raw, err := a.(syscall.Conn).SyscallConn()
	note(0, err)
	note(0, raw.Control(func(uintptr) {}))
	note(0, raw.Read(func(uintptr) bool { return true }))
	note(0, raw.Write(func(uintptr) bool { return true }))

	c, d := pair(t, s, network) // the peer discards unread data
	_, _ = d.Write(p)
	if tcp, ok := c.(tcpMethods); ok {
		note(0, tcp.SetLinger(0))
	}
	_ = c.Close()
	for _, err = d.Write(p); err == nil; _, err = d.Write(p) {
	}
	note(0, err)

	l := listen(t, s, network)
	note(0, l.(interface{ SetDeadline(time.Time) error }).SetDeadline(past))
	_, err = l.Accept()
	note(0, err)
	note(0, l.Close())
	note(0, l.Close())
	_, err = l.Accept()
	note(0, err)
	note(0, l.(interface{ SetDeadline(time.Time) error }).SetDeadline(past))
	raw, err = l.(syscall.Conn).SyscallConn()
	note(0, err)
	note(0, raw.Control(func(uintptr) {}))
	note(0, raw.Read(func(uintptr) bool { return true }))
	note(0, raw.Write(func(uintptr) bool { return true }))
	_, err = s.Dial(network, l.Addr().String())
	note(0, err)
	_, err = s.Listen(network, "/nowhere/at/all")
	note(0, err)
	return all
}

type tcpMethods interface {
	SetNoDelay(bool) error
	SetLinger(int) error
	SetKeepAlive(bool) error
	SetKeepAlivePeriod(time.Duration) error
	SetKeepAliveConfig(net.KeepAliveConfig) error
}

// Promise: unet/close-ends-waiting
func TestCloseEndsPendingCalls(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b net.Conn) {
		read := start(func() error { _, err := a.Read(make([]byte, 8)); return err })
		write := start(func() error {
			for {
				if _, err := a.Write(make([]byte, 1<<20)); err != nil {
					return err
				}
			}
		})
		time.Sleep(10 * time.Millisecond) // so that the calls wait, most of the time
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		for _, ch := range []<-chan error{read, write} {
			if err := soon(t, "a pending call", ch); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a pending call returned %v", err)
			}
		}
	})
}

func TestDeadlineMovesWhileCallsWait(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b net.Conn) {
		_ = a.SetReadDeadline(time.Now().Add(time.Hour))
		read := start(func() error { _, err := a.Read(make([]byte, 8)); return err })
		runtime.Gosched()
		_ = a.SetReadDeadline(time.Now().Add(2 * time.Hour))
		_ = a.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		err := soon(t, "a read with a deadline", read)
		if ne, ok := err.(net.Error); !ok || !ne.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read past its deadline: %v", err)
		}
		if _, err := a.Read(make([]byte, 8)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the deadline did not stay: %v", err)
		}

		// The deadline is extended, then removed: the read continues.
		begin := time.Now()
		_ = a.SetReadDeadline(begin.Add(30 * time.Millisecond))
		read = start(func() error { _, err := a.Read(make([]byte, 8)); return err })
		_ = a.SetReadDeadline(time.Time{})
		late := time.Since(begin) >= 30*time.Millisecond // for slow machines
		time.Sleep(60 * time.Millisecond)
		if _, err := b.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := soon(t, "a read without a deadline", read); err != nil && !late {
			t.Fatalf("read whose deadline was removed: %v", err)
		}
	})
}

func TestWriteDeadline(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b net.Conn) {
		p := make([]byte, 64<<20)
		var n int
		var err error
		// On a slow machine the deadline may pass before the first byte.
		for wait := 50 * time.Millisecond; n == 0 && wait < patience; wait *= 2 {
			_ = a.SetWriteDeadline(time.Now().Add(wait))
			n, err = a.Write(p)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || n <= 0 || n >= len(p) {
			t.Fatalf("write that the peer does not read: %d, %v", n, err)
		}
		_ = a.SetWriteDeadline(time.Time{})
		drained := start(func() error { _, err := io.CopyN(io.Discard, b, int64(n)+3); return err })
		if _, err := a.Write([]byte("end")); err != nil {
			t.Fatal(err)
		}
		if err := soon(t, "what was written", drained); err != nil {
			t.Fatal(err)
		}
	})
}

// TestShortReadBeforeTheEnd sends data and the end together: a read that takes all the data
// must not hide the end.
func TestShortReadBeforeTheEnd(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b net.Conn) {
		done := start(func() error {
			data, err := io.ReadAll(a)
			if err == nil && string(data) != "some data" {
				err = errors.New("read " + string(data))
			}
			return err
		})
		_, _ = b.Write([]byte("some data"))
		_ = b.Close()
		if err := soon(t, "the end", done); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHalfClose(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b net.Conn) {
		echo := start(func() error {
			data, err := io.ReadAll(b)
			if err == nil {
				_, err = b.Write(append(data, '!'))
			}
			return errors.Join(err, b.Close())
		})
		_, _ = a.Write([]byte("question"))
		if err := a.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(a)
		if err != nil || string(answer) != "question!" {
			t.Fatalf("%q, %v", answer, err)
		}
		if err := soon(t, "the server", echo); err != nil {
			t.Fatal(err)
		}
	})
}

// TestWritesDoNotMix writes from several goroutines at once.
// Promise: unet/byte-order-right
func TestWritesDoNotMix(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b net.Conn) {
		const writers, size = 4, 1 << 20
		for i := range writers {
			go func() {
				p := make([]byte, size)
				for j := range p {
					p[j] = byte('a' + i)
				}
				_, _ = a.Write(p)
			}()
		}
		p := make([]byte, size)
		for range writers {
			if _, err := io.ReadFull(b, p); err != nil {
				t.Fatal(err)
			}
			for j := range p {
				if p[j] != p[0] {
					t.Fatalf("byte %d belongs to another write", j)
				}
			}
		}
	})
}

func TestAddresses(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		eachMode(t, func(t *testing.T, s *unet.System) {
			a, b := pair(t, s, network)
			if a.RemoteAddr().String() != b.LocalAddr().String() || a.LocalAddr().String() != b.RemoteAddr().String() {
				t.Errorf("%v -> %v, %v -> %v", a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr())
			}
			if a.LocalAddr().Network() != network || b.RemoteAddr().Network() != network {
				t.Errorf("networks %s and %s", a.LocalAddr().Network(), b.RemoteAddr().Network())
			}
		})
	}
}

func TestUnixListenerRemovesItsFile(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		l := listen(t, s, "unix")
		path := l.Addr().String()
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after Close: %v", err)
		}
		l = listen(t, s, "unix")
		l.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false)
		_ = l.Close()
		if _, err := os.Stat(l.Addr().String()); err != nil {
			t.Errorf("kept: %v", err)
		}
	})
}
