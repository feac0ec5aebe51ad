// SPDX-License-Identifier: MIT

package uring_test

import (
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestConnectFailsAsTheCallDoes connects several times with the same socket to a port
// without a listener and to an address without a route, and connects a descriptor that is
// no socket. Each result is that of connect(2).
func TestConnectFailsAsTheCallDoes(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		deaf := localAddr(t, boundSocket(t, unix.SOCK_STREAM))
		missing := filepath.Join(t.TempDir(), "missing")
		for what, target := range map[string]struct {
			domain int
			plain  unix.Sockaddr
			ring   func() (*uring.Sockaddr, error)
		}{
			"no listener": {unix.AF_INET, &unix.SockaddrInet4{Addr: deaf.Addr().As4(), Port: int(deaf.Port())},
				func() (*uring.Sockaddr, error) { return uring.NewSockaddr(deaf) }},
			"broadcast": {unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{255, 255, 255, 255}, Port: 9},
				func() (*uring.Sockaddr, error) {
					return uring.NewSockaddr(netip.MustParseAddrPort("255.255.255.255:9"))
				}},
			"no route": {unix.AF_INET6, &unix.SockaddrInet6{Addr: netip.MustParseAddr("100::1").As16(), Port: 9},
				func() (*uring.Sockaddr, error) { return uring.NewSockaddr(netip.MustParseAddrPort("[100::1]:9")) }},
			"no such name": {unix.AF_UNIX, &unix.SockaddrUnix{Name: missing},
				func() (*uring.Sockaddr, error) { return uring.NewUnixSockaddr(missing) }},
		} {
			want, ok := plainConnect(t, target.domain, target.plain)
			if what == "no listener" {
				want, ok = syscall.ECONNREFUSED, true // the call does not wait for the result
			}
			if !ok {
				continue // a default route exists
			}
			to, err := target.ring()
			ctlOK(t, "address", err)
			fd := own(t, openFor(t, target.domain))
			for range 3 {
				c := complete(t, r, func(e *uring.SQE) { e.Connect(on(fd), to) })
				if c.Errno() != want {
					t.Errorf("%s: %d, %v, want %v", what, c.Res, c.Err(), want)
				}
			}
		}
	})
}

func openFor(t *testing.T, domain int) int {
	t.Helper()
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs sockets of domain %d: %v", domain, err)
	}
	return fd
}

// plainConnect returns the errno of connect(2) on a non-blocking socket, and false while
// the connection is in progress.
func plainConnect(t *testing.T, domain int, to unix.Sockaddr) (syscall.Errno, bool) {
	t.Helper()
	fd := openFor(t, domain)
	defer ctlClose(t, fd)
	ctlOK(t, "nonblock", unix.SetNonblock(fd, true))
	err := unix.Connect(fd, to)
	if err == nil || err == unix.EINPROGRESS {
		return 0, false
	}
	return err.(syscall.Errno), true
}

// TestSQPollOutlivesItsFirstRing closes a ring whose SQPOLL thread other rings share, and
// rings that were never enabled.
func TestSQPollOutlivesItsFirstRing(t *testing.T) {
	ringtest.NeedKernel(t, "SQPOLL without privileges", "5.13")
	o := uring.Options{Entries: 8, SQPoll: true, SQPollIdle: 10 * time.Millisecond}
	first, err := uring.Open(o)
	ctlOK(t, "open", err)
	o.AttachWQ = first
	second := ctlRing(t, o)
	ctlNops(t, first, 1, 3)
	ctlNops(t, second, 1, 3)
	o.Disabled = true
	disabled, err := uring.Open(o)
	ctlOK(t, "open disabled", err)
	ctlOK(t, "close the first", first.Close())
	ctlOK(t, "close the disabled one", disabled.Close())
	ctlNops(t, second, 4, 9)
	ctlUntil(t, "the thread sleeps", func() bool { return second.SQFlags()&uring.SQNeedWakeup != 0 })
	ctlNops(t, second, 10, 12)
}
