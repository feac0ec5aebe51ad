// SPDX-License-Identifier: MIT

package event

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestZonesOfRenamedInterfaces: the zone of a peer's address is the present name of its interface, and a
// datagram to a zone leaves by the interface that has the name now. The test runs in a network namespace.
// Promise: unet/event/datagrams-loops-delivered
func TestZonesOfRenamedInterfaces(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the program ip (Debian: iproute2)")
	}
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	if err := namespaceWith(attr); err != nil {
		t.Skipf("needs a network namespace, as root or by user namespaces, with interfaces of type bridge: %v", err)
	}
	if !ringtest.InChild(t, attr) {
		return
	}
	ip(t, "link", "set", "lo", "up")
	first, second := link(t, "d0", "fe80::1"), link(t, "d1", "fe80::2")
	overModes(t, func(t *testing.T, o Options) {
		if o.Mode == ModeNet {
			t.Skip("package net keeps the names of interfaces for a minute")
		}
		c := startPackets(t, "udp6", "[::]:0", PacketHandler{OnPacket: func(c *PacketConn, from Peer, p []byte) {
			if _, err := c.WriteTo([]byte(from.Addr.Addr().Zone()), from); err != nil {
				t.Errorf("WriteTo %v: %v", from, err)
			}
		}}, o)
		port := c.LocalAddr().(*net.UDPAddr).Port
		for range 2 { // names, exchanged names
			for index, address := range map[int]string{first: "fe80::1", second: "fe80::2"} {
				want, err := net.InterfaceByIndex(index)
				if err != nil {
					t.Fatal(err)
				}
				if zone := zoneSeen(t, address, index, port); zone != want.Name {
					t.Errorf("the peer on interface %d, now %s, has the zone %q", index, want.Name, zone)
				}
				reaches(t, c, address, index, want.Name)
			}
			ip(t, "link", "set", "d0", "name", "other")
			ip(t, "link", "set", "d1", "name", "d0")
			ip(t, "link", "set", "other", "name", "d1")
		}
		ip(t, "link", "del", "d0") // d0 and d1 are what they were
		if first = link(t, "d0", "fe80::1"); zoneSeen(t, "fe80::1", first, port) != "d0" {
			t.Error("an interface that was made anew has no zone")
		}
	})
}

// namespaceWith returns why no namespace with an interface can be made.
func namespaceWith(attr *syscall.SysProcAttr) error {
	cmd := exec.Command("ip", "link", "add", "d0", "type", "bridge")
	cmd.SysProcAttr = attr
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

// link makes an interface with a link-local address, and returns its number.
func link(t *testing.T, name, address string) int {
	t.Helper()
	ip(t, "link", "add", name, "type", "bridge")
	ip(t, "link", "set", name, "addrgenmode", "none")
	ip(t, "link", "set", name, "up")
	ip(t, "-6", "addr", "add", address+"/64", "dev", name, "nodad")
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return i.Index
}

// zoneSeen returns the zone that the server sees of a peer on an interface. The number of the interface stands for
// its name, so that package net's table of names does not count.
func zoneSeen(t *testing.T, address string, index, port int) string {
	t.Helper()
	zone := fmt.Sprint(index)
	ask := func() (string, error) {
		pc, err := net.DialUDP("udp6", &net.UDPAddr{IP: net.ParseIP(address), Zone: zone}, &net.UDPAddr{IP: net.ParseIP(address), Port: port, Zone: zone})
		if err != nil {
			return "", err
		}
		defer pc.Close()
		_ = pc.SetDeadline(time.Now().Add(time.Second))
		if _, err := pc.Write([]byte("x")); err != nil {
			return "", err
		}
		p := make([]byte, 100)
		n, err := pc.Read(p)
		return string(p[:n]), err
	}
	for end := time.Now().Add(testPatience); ; { // the kernel makes the route of a new address a little later
		seen, err := ask()
		if err == nil {
			return seen
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// reaches sends a datagram to an address with a zone. It must arrive on the interface with that number.
func reaches(t *testing.T, c *PacketConn, address string, index int, zone string) {
	t.Helper()
	pc, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.ParseIP(address), Zone: fmt.Sprint(index)})
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	_ = pc.SetDeadline(time.Now().Add(testPatience))
	to := netip.AddrPortFrom(netip.MustParseAddr(address).WithZone(zone), uint16(pc.LocalAddr().(*net.UDPAddr).Port))
	if _, err := c.WriteTo([]byte("y"), Peer{Addr: to}); err != nil {
		t.Fatalf("WriteTo %v: %v", to, err)
	}
	p := make([]byte, 10)
	if n, _, err := pc.ReadFrom(p); err != nil || string(p[:n]) != "y" {
		t.Errorf("to %v: received %q, %v", to, p[:n], err)
	}
}
