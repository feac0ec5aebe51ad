// SPDX-License-Identifier: MIT

package unet_test

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/unet"
)

// Interfaces to which programs convert.
type common interface {
	net.Conn
	syscall.Conn
	CloseRead() error
	CloseWrite() error
	File() (*os.File, error)
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}

var (
	_ interface {
		common
		tcpMethods
		MultipathTCP() (bool, error)
	} = (*unet.TCPConn)(nil)
	_ common = (*unet.UnixConn)(nil)
	_ interface {
		net.Listener
		syscall.Conn
		SetDeadline(time.Time) error
		File() (*os.File, error)
	} = (*unet.TCPListener)(nil)
	_ net.Listener = (*unet.UnixListener)(nil)
	_ io.Closer    = (*unet.UnixListener)(nil)
)

// options reads the socket options of a connection.
func options(t *testing.T, c net.Conn) map[string]int {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int)
	err = raw.Control(func(fd uintptr) {
		for name, o := range map[string][2]int{
			"no delay": {syscall.IPPROTO_TCP, syscall.TCP_NODELAY},
			"probe":    {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE},
			"idle":     {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE},
			"interval": {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL},
			"count":    {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT},

			"user timeout": {syscall.IPPROTO_TCP, sys.TCPUserTimeout},
		} {
			if got[name], err = sys.SockInt(int(fd), o[0], o[1]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestOptions compares the options of connections with those of package net, first the
// defaults, then after they were set.
func TestOptions(t *testing.T) {
	var want []map[string]int
	eachMode(t, func(t *testing.T, s *unet.System) {
		a, b := pair(t, s, "tcp")
		got := []map[string]int{options(t, a), options(t, b)}
		c := a.(tcpMethods)
		for _, err := range []error{c.SetNoDelay(false), c.SetKeepAlivePeriod(90 * time.Second)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, options(t, a))
		if err := c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 1500 * time.Millisecond, Count: 3}); err != nil {
			t.Fatal(err)
		}
		got = append(got, options(t, a))
		if err := c.SetKeepAlive(false); err != nil {
			t.Fatal(err)
		}
		got = append(got, options(t, a))
		if want == nil {
			want = got
		}
		for i := range want {
			for name, v := range want[i] {
				if got[i][name] != v {
					t.Errorf("step %d: %s is %d, package net's %d", i, name, got[i][name], v)
				}
			}
		}
	})
}

func TestUserTimeout(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		a, _ := pair(t, s, "tcp")
		c, ok := a.(*unet.TCPConn)
		if !ok {
			return // of package net, which has no such method
		}
		const most = math.MaxInt32
		for d, want := range map[time.Duration]int{
			1: 1, time.Second: 1000, time.Second + 1: 1001, 0: 0, -1: 0, most * time.Millisecond: most, math.MaxInt64: most,
		} {
			err := c.SetUserTimeout(d)
			if got := options(t, c)["user timeout"]; got != want || err != nil {
				t.Errorf("%v: %d ms, %v; want %d", d, got, err, want)
			}
		}
	})
}

func TestFileIsACopy(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b net.Conn) {
		f, err := a.(common).File()
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Close()
		if _, err := f.Write([]byte("through the copy")); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if data, err := io.ReadAll(b); err != nil || string(data) != "through the copy" {
			t.Fatalf("%q, %v", data, err)
		}
	})
}

// TestFileKeepsOptions checks that File does not change the options of the socket.
func TestFileKeepsOptions(t *testing.T) {
	eachPair(t, func(t *testing.T, a, _ net.Conn) {
		c, ok := a.(interface {
			SetNoDelay(bool) error
			SetKeepAlive(bool) error
			syscall.Conn
		})
		if !ok {
			return // a Unix socket
		}
		if err := errors.Join(c.SetNoDelay(false), c.SetKeepAlive(false)); err != nil {
			t.Fatal(err)
		}
		f, err := a.(common).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			noDelay, err1 := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
			keepAlive, err2 := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
			if noDelay != 0 || keepAlive != 0 || errors.Join(err1, err2) != nil {
				t.Errorf("TCP_NODELAY %d, SO_KEEPALIVE %d after File; %v, %v", noDelay, keepAlive, err1, err2)
			}
		}); err != nil {
			t.Error(err)
		}
	})
}

func TestSyscallConnWaits(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b net.Conn) {
		raw, err := a.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 8)
		read := start(func() error {
			var n int
			err := raw.Read(func(fd uintptr) bool {
				var errno syscall.Errno
				n, errno = sys.SockRecv(int(fd), p, sys.MsgDontWait)
				return errno != syscall.EAGAIN
			})
			p = p[:n]
			return err
		})
		_, _ = b.Write([]byte("hello"))
		if err := soon(t, "a raw read", read); err != nil || string(p) != "hello" {
			t.Fatalf("%q, %v", p, err)
		}
		_, _ = b.Write([]byte("again"))
		p = p[:5]
		if _, err := io.ReadFull(a, p); err != nil || string(p) != "again" {
			t.Fatalf("%q, %v", p, err)
		}
		_ = a.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		err = raw.Read(func(uintptr) bool { return false })
		if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
			t.Fatalf("a raw read past its deadline: %v", err)
		}
	})
}

// TestUrgentDataDoesNotHideWhatFollows sends a byte of urgent data, at which a receive
// stops.
func TestUrgentDataDoesNotHideWhatFollows(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		a, b := pair(t, s, "tcp")
		raw, err := b.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		got := start(func() error { _, err := io.ReadFull(a, make([]byte, 12)); return err })
		_, _ = b.Write([]byte("before"))
		if err := raw.Control(func(fd uintptr) { sys.SockSend(int(fd), []byte("!"), syscall.MSG_OOB) }); err != nil {
			t.Fatal(err)
		}
		_, _ = b.Write([]byte("behind"))
		if err := soon(t, "what follows urgent data", got); err != nil {
			t.Fatal(err)
		}
	})
}
