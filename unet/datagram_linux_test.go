// SPDX-License-Identifier: MIT

package unet_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// packetNetworks are the kinds of datagram sockets.
var packetNetworks = []string{"udp4", "udp6", "udp", "unixgram"}

func listenPacket(t *testing.T, s *unet.System, network string) net.PacketConn {
	t.Helper()
	address := map[string]string{"udp4": "127.0.0.1:0", "udp6": "[::1]:0", "udp": ":0"}[network]
	if network == "unixgram" {
		address = filepath.Join(t.TempDir(), "p")
	}
	c, err := s.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func eachPacketConn(t *testing.T, f func(t *testing.T, s *unet.System, network string)) {
	for _, network := range packetNetworks {
		for _, mode := range modes() {
			t.Run(fmt.Sprintf("%s/%v", network, mode), func(t *testing.T) { f(t, newSystem(t, mode), network) })
		}
	}
}

// target returns the address for a socket that listens on all addresses.
func target(c net.PacketConn) net.Addr {
	if a, ok := c.LocalAddr().(*net.UDPAddr); ok && a.IP.IsUnspecified() {
		return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: a.Port}
	}
	return c.LocalAddr()
}

func TestPacketConn(t *testing.T) {
	eachPacketConn(t, func(t *testing.T, s *unet.System, network string) {
		a, b := listenPacket(t, s, network), listenPacket(t, s, network)
		for _, size := range []int{0, 1, 1000, 3} {
			if n, err := a.WriteTo(make([]byte, size), target(b)); n != size || err != nil {
				t.Fatalf("write: %d, %v", n, err)
			}
			n, from, err := b.ReadFrom(make([]byte, 2000))
			if n != size || err != nil || !samePort(from, a.LocalAddr()) {
				t.Fatalf("read %d of %d from %v, %v", n, size, from, err)
			}
			if _, err := b.WriteTo([]byte("back"), from); err != nil {
				t.Fatal(err)
			}
			if n, _, err := a.ReadFrom(make([]byte, 2)); n != 2 || err != nil {
				t.Fatalf("read cut short: %d, %v", n, err)
			}
		}
		read := start(func() error { _, _, err := a.ReadFrom(make([]byte, 1)); return err })
		_ = a.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if err := soon(t, "a read with a deadline", read); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("past the deadline: %v", err)
		}
		_ = a.SetReadDeadline(time.Time{})
		read = start(func() error { _, _, err := a.ReadFrom(make([]byte, 1)); return err })
		_ = a.Close()
		if err := soon(t, "a read of a closed socket", read); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("closed: %v", err)
		}
	})
}

func samePort(a, b net.Addr) bool {
	if u, ok := a.(*net.UDPAddr); ok {
		return u.Port == b.(*net.UDPAddr).Port
	}
	return a.String() == b.String()
}

func TestPacketErrorsAreThoseOfNet(t *testing.T) {
	for _, network := range packetNetworks {
		t.Run(network, func(t *testing.T) {
			var want []string
			for _, mode := range modes() {
				got := packetErrorsOf(t, newSystem(t, mode), network)
				if want == nil {
					want = got
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

func packetErrorsOf(t *testing.T, s *unet.System, network string) []string {
	var all []string
	note := func(n int, err error) {
		all = append(all, fmt.Sprint(describe(err), " n=", n))
	}
	a, p := listenPacket(t, s, network), make([]byte, 4)
	c, err := s.Dial(network, target(a).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	note(c.Write(p))
	note(c.Write(nil))
	note(a.(net.Conn).Read(p[:2]))
	note(a.(net.Conn).Read(p))
	note(a.(net.Conn).Read(nil))
	note(a.(net.Conn).Write(p))
	note(a.WriteTo(p, &net.IPAddr{}))
	note(a.WriteTo(p, nil))
	note(c.(net.PacketConn).WriteTo(p, target(a)))
	note(a.WriteTo(make([]byte, 1<<20), target(a)))
	note(a.WriteTo(p, &net.UnixAddr{Name: "/nowhere/at/all", Net: network}))
	_ = a.SetDeadline(time.Unix(1, 0))
	_, _, err = a.ReadFrom(p)
	note(0, err)
	note(a.WriteTo(p, target(a)))
	_ = a.Close()
	_, _, err = a.ReadFrom(p)
	note(0, err)
	note(a.WriteTo(p, target(a)))
	note(0, a.SetDeadline(time.Time{}))
	note(0, a.Close())
	return all
}

func TestPacketBatches(t *testing.T) {
	eachPacketConn(t, func(t *testing.T, s *unet.System, network string) {
		a, b := unet.NewBatchConn(listenPacket(t, s, network)), unet.NewBatchConn(listenPacket(t, s, network))
		const total = 100
		out := make([]unet.Packet, total)
		for i := range out {
			out[i].Data = fmt.Appendf(nil, "packet %d", i)
			switch to := target(b).(type) {
			case *net.UDPAddr:
				out[i].Addr = to.AddrPort()
			default:
				out[i].Name = to.String()
			}
		}
		sent := start(func() error {
			n, err := a.WriteBatch(out)
			if n != total && err == nil {
				err = fmt.Errorf("sent %d", n)
			}
			return err
		})
		in := make([]unet.Packet, 10)
		for i := range in {
			in[i].Data = make([]byte, 9) // "packet 10" and later ones do not fit
		}
		for got := 0; got < total; {
			n, err := b.ReadBatch(in)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range in[:n] {
				if want := fmt.Sprintf("packet %d", got); string(p.Data[:p.N]) != want[:min(len(want), 9)] {
					t.Fatalf("packet %d is %q", got, p.Data[:p.N])
				}
				if p.Name != "" && p.Name != a.LocalAddr().String() || network != "unixgram" && !p.Addr.IsValid() {
					t.Fatalf("from %v, %q", p.Addr, p.Name)
				}
				got++
			}
		}
		if err := soon(t, "the sender", sent); err != nil {
			t.Fatal(err)
		}
		if _, err := a.WriteBatch([]unet.Packet{{Data: []byte("x"), Addr: netip.AddrPort{}}}); err == nil {
			t.Error("a packet without a destination was sent")
		}
	})
}

// TestZonesAreLookedUpOnce sends to and receives from an address with a zone. A look-up
// visits all interfaces and makes dozens of allocations.
func TestZonesAreLookedUpOnce(t *testing.T) {
	for _, mode := range modes()[1:] {
		t.Run(mode.String(), func(t *testing.T) {
			c := listenPacket(t, newSystem(t, mode), "udp6")
			to := *c.LocalAddr().(*net.UDPAddr)
			to.Zone = "lo"
			p := make([]byte, 8)
			send := func() {
				if _, err := c.WriteTo(p, &to); err != nil {
					t.Fatal(err)
				}
				if _, _, err := c.ReadFrom(p); err != nil {
					t.Fatal(err)
				}
			}
			send()
			if n := ringtest.Allocations(50, send); n > 5 {
				t.Errorf("%v allocations for a datagram", n)
			}
		})
	}
}

// TestDatagramsNeedNoDriver exchanges datagrams, one by one and in batches: no driver is
// started, and the socket is that of package net.
// Promise: unet/datagram-socket-costs
func TestDatagramsNeedNoDriver(t *testing.T) {
	for _, mode := range modes()[1:] {
		for _, network := range packetNetworks {
			t.Run(fmt.Sprintf("%s/%v", network, mode), func(t *testing.T) {
				s := newSystem(t, mode)
				c := listenPacket(t, s, network)
				p := make([]byte, 8)
				for range 20 {
					if _, err := c.WriteTo(p, target(c)); err != nil {
						t.Fatal(err)
					}
					if _, err := c.(unet.BatchConn).ReadBatch([]unet.Packet{{Data: p}}); err != nil {
						t.Fatal(err)
					}
				}
				if stats := s.Stats(); stats != (unet.Stats{}) {
					t.Errorf("a driver was started: %+v", stats)
				}
				switch c := c.(type) {
				case *unet.UDPConn:
					_ = c.UDPConn.SetReadBuffer(1 << 16)
				case *unet.UnixgramConn:
					_ = c.UnixConn.SetReadBuffer(1 << 16)
				default:
					t.Errorf("%T", c)
				}
			})
		}
	}
}

// TestBatchesAllocateNothing counts the allocations of a batch of one datagram.
func TestBatchesAllocateNothing(t *testing.T) {
	if sys.Faulty {
		t.Skip("needs a build without the race detector, in which sync.Pool drops objects")
	}
	c := listenPacket(t, newSystem(t, unet.ModePlain), "udp4").(*unet.UDPConn)
	p := []unet.Packet{{Data: make([]byte, 8), Addr: c.LocalAddr().(*net.UDPAddr).AddrPort()}}
	n := ringtest.Allocations(200, func() {
		if _, err := c.WriteBatch(p); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ReadBatch(p); err != nil {
			t.Fatal(err)
		}
	})
	if n >= 1 {
		t.Errorf("%v allocations for a datagram there and back", n)
	}
}
