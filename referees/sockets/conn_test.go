// SPDX-License-Identifier: MIT

package sockets

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/ringside-io/ringside/unet"
)

// modes are the modes in which every test runs.
var modes = []unet.Mode{unet.ModeRing, unet.ModePlain, unet.ModeNet}

// networks are the transports, with addresses to listen on.
var networks = []struct{ name, address string }{
	{"tcp4", "127.0.0.1:0"},
	{"tcp6", "[::1]:0"},
	{"unix", ""},
	{"unixpacket", ""},
}

func forEach(t *testing.T, f func(t *testing.T, s *unet.System, network, address string)) {
	for _, mode := range modes {
		for _, n := range networks {
			t.Run(fmt.Sprintf("%v/%s", mode, n.name), func(t *testing.T) {
				s := system(t, mode)
				f(t, s, n.name, address(t, n.name, n.address))
			})
		}
	}
}

func system(t testing.TB, mode unet.Mode) *unet.System {
	t.Helper()
	s, err := unet.NewSystem(unet.Options{Mode: mode})
	if err != nil {
		if mode == unet.ModeRing {
			needRing(t, err)
		}
		t.Fatal(err)
	}
	return s
}

// address returns an address to listen on. Every Unix listener needs a path of its own.
func address(t *testing.T, network, fixed string) string {
	t.Helper()
	if fixed != "" {
		if !nettest.TestableNetwork(network) {
			t.Skipf("needs the network %s", network)
		}
		return fixed
	}
	return filepath.Join(t.TempDir(), "s")
}

// pair returns both ends of a connection.
func pair(s *unet.System, network, address string) (dialed, accepted net.Conn, err error) {
	l, err := s.Listen(network, address)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	type result struct {
		net.Conn
		error
	}
	done := make(chan result, 1)
	go func() {
		c, err := l.Accept()
		done <- result{c, err}
	}()
	dialed, err = s.Dial(network, l.Addr().String())
	if err != nil {
		l.Close()
		<-done
		return nil, nil, err
	}
	r := <-done
	return dialed, r.Conn, r.error
}

// Promise: unet/net-s-results
func TestConn(t *testing.T) {
	forEach(t, func(t *testing.T, s *unet.System, network, address string) {
		if network == "unixpacket" {
			t.Skip("needs a stream")
		}
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			c1, c2, err = pair(s, network, address)
			if err != nil {
				return nil, nil, nil, err
			}
			return c1, c2, func() { c1.Close(); c2.Close() }, nil
		})
	})
}
