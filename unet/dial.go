// SPDX-License-Identifier: MIT

package unet

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Dialer is net.Dialer: names are resolved, addresses tried and timeouts kept
// by its rules. The connection is then driven by the system.
type Dialer struct {
	net.Dialer
	// System drives the connections; nil means the package's own.
	System *System
}

// Dial connects to an address; see DialContext.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to an address, as net.Dialer.DialContext. Connections of
// tcp, tcp4 and tcp6 are a [TCPConn], of unix and unixpacket a [UnixConn], of udp,
// udp4 and udp6 a [UDPConn], of unixgram a [UnixgramConn]; all others, and those
// of a system that uses package net, are package net's.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return d.System.or().takeConn(c, network)
}

// Dial connects to an address, as net.Dial.
func Dial(network, address string) (net.Conn, error) {
	var d Dialer
	return d.Dial(network, address)
}

// DialTimeout is Dial that gives up after a time, as net.DialTimeout.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	d := Dialer{Dialer: net.Dialer{Timeout: timeout}}
	return d.Dial(network, address)
}

// Dial is the package's Dial on the system.
func (s *System) Dial(network, address string) (net.Conn, error) {
	d := Dialer{System: s}
	return d.Dial(network, address)
}

// ListenConfig is net.ListenConfig with a few settings more. The zero value is
// what Listen uses.
type ListenConfig struct {
	net.ListenConfig
	// System drives the sockets; nil means the package's own.
	System *System
	// ReusePort lets several sockets listen on one address (SO_REUSEPORT); the
	// kernel spreads connections over them. Linux only.
	ReusePort bool
	// Backlog is how many connections may wait to be accepted; 0 means the
	// system's limit (net.core.somaxconn). Linux only.
	Backlog int
}

func (lc *ListenConfig) std() *net.ListenConfig {
	n := lc.ListenConfig
	if lc.ReusePort {
		n.Control = lc.reusePort
	}
	return &n
}

// reusePort is Control, and sets the option first.
func (lc *ListenConfig) reusePort(network, address string, c syscall.RawConn) error {
	var optErr error
	err := c.Control(func(fd uintptr) { optErr = reusePort(int(fd)) })
	if err := errors.Join(err, optErr); err != nil || lc.Control == nil {
		return err
	}
	return lc.Control(network, address, c)
}

// Listen listens on an address of tcp, tcp4, tcp6, unix or unixpacket, with the
// rules of net.ListenConfig.Listen. The listener is a [TCPListener] or a
// [UnixListener], or package net's where the system uses that.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := lc.std().Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return lc.System.or().takeListener(l, network, listenOptions{lc.Backlog, lc.KeepAlive, lc.KeepAliveConfig})
}

// Listen listens on an address of tcp, tcp4, tcp6, unix or unixpacket, as
// net.Listen.
func Listen(network, address string) (net.Listener, error) {
	var lc ListenConfig
	return lc.Listen(context.Background(), network, address)
}

// Listen is the package's Listen on the system.
func (s *System) Listen(network, address string) (net.Listener, error) {
	lc := ListenConfig{System: s}
	return lc.Listen(context.Background(), network, address)
}

// ListenPacket opens a socket for udp, udp4, udp6 or unixgram, with the rules of
// net.ListenConfig.ListenPacket. It is a [UDPConn] or a [UnixgramConn], which
// are a [BatchConn], or package net's (see [NewBatchConn]) where the system uses that
// or the network is another.
func (lc *ListenConfig) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	c, err := lc.std().ListenPacket(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return lc.System.or().takePacketConn(c, network)
}

// ListenPacket opens a socket for datagrams, as net.ListenPacket.
func ListenPacket(network, address string) (net.PacketConn, error) {
	var lc ListenConfig
	return lc.ListenPacket(context.Background(), network, address)
}

// ListenPacket is the package's ListenPacket on the system.
func (s *System) ListenPacket(network, address string) (net.PacketConn, error) {
	lc := ListenConfig{System: s}
	return lc.ListenPacket(context.Background(), network, address)
}

// listenOptions are what a listener needs beyond its descriptor.
type listenOptions struct {
	backlog int
	period  time.Duration
	probes  net.KeepAliveConfig
}
