// SPDX-License-Identifier: MIT

package unet

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Dialer is a net.Dialer, which resolves names, tries addresses and keeps timeouts,
// and the system that then drives the connection.
type Dialer struct {
	net.Dialer
	// System drives the connections; nil means the default system.
	System *System
}

// Dial connects to an address; see DialContext.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to an address, as net.Dialer.DialContext. It returns a
// [TCPConn] for tcp, tcp4 and tcp6, a [UnixConn] for unix and unixpacket, a [UDPConn]
// for udp, udp4 and udp6, and a [UnixgramConn] for unixgram. For other networks, and
// if the system uses package net, it returns a connection of package net.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return d.System.or().attachConn(c, network)
}

// Dial connects to an address, as net.Dial.
func Dial(network, address string) (net.Conn, error) {
	var d Dialer
	return d.Dial(network, address)
}

// DialTimeout is Dial with a timeout, as net.DialTimeout.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	d := Dialer{Dialer: net.Dialer{Timeout: timeout}}
	return d.Dial(network, address)
}

// Dial connects to an address; the system drives the connection.
func (s *System) Dial(network, address string) (net.Conn, error) {
	d := Dialer{System: s}
	return d.Dial(network, address)
}

// ListenConfig is a net.ListenConfig with more settings. Listen uses the zero value.
type ListenConfig struct {
	net.ListenConfig
	// System drives the sockets; nil means the default system.
	System *System
	// ReusePort allows several sockets to listen on one address (SO_REUSEPORT);
	// the kernel distributes connections over them. Linux only.
	ReusePort bool
	// Backlog limits the connections that wait to be accepted; 0 means the
	// limit of the kernel (net.core.somaxconn). Linux only.
	Backlog int
}

func (lc *ListenConfig) std() *net.ListenConfig {
	n := lc.ListenConfig
	if lc.ReusePort {
		n.Control = lc.reusePort
	}
	return &n
}

// reusePort sets SO_REUSEPORT and then calls Control.
func (lc *ListenConfig) reusePort(network, address string, c syscall.RawConn) error {
	var optErr error
	err := c.Control(func(fd uintptr) { optErr = reusePort(int(fd)) })
	if err := errors.Join(err, optErr); err != nil || lc.Control == nil {
		return err
	}
	return lc.Control(network, address, c)
}

// Listen listens on an address of tcp, tcp4, tcp6, unix or unixpacket, as
// net.ListenConfig.Listen. It returns a [TCPListener] or a [UnixListener], or a
// listener of package net if the system uses that.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := lc.std().Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return lc.System.or().attachListener(l, network, listenOptions{lc.Backlog, lc.KeepAlive, lc.KeepAliveConfig})
}

// Listen listens on an address of tcp, tcp4, tcp6, unix or unixpacket, as
// net.Listen.
func Listen(network, address string) (net.Listener, error) {
	var lc ListenConfig
	return lc.Listen(context.Background(), network, address)
}

// Listen listens on an address; the system drives the listener and its connections.
func (s *System) Listen(network, address string) (net.Listener, error) {
	lc := ListenConfig{System: s}
	return lc.Listen(context.Background(), network, address)
}

// ListenPacket opens a socket for udp, udp4, udp6 or unixgram, as
// net.ListenConfig.ListenPacket. It returns a [UDPConn] or a [UnixgramConn], each a
// [BatchConn]. For other networks, and if the system uses package net, it returns a
// socket of package net (see [NewBatchConn]).
func (lc *ListenConfig) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	c, err := lc.std().ListenPacket(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return lc.System.or().attachPacketConn(c, network)
}

// ListenPacket opens a socket for datagrams, as net.ListenPacket.
func ListenPacket(network, address string) (net.PacketConn, error) {
	var lc ListenConfig
	return lc.ListenPacket(context.Background(), network, address)
}

// ListenPacket opens a socket for datagrams; the system drives it.
func (s *System) ListenPacket(network, address string) (net.PacketConn, error) {
	lc := ListenConfig{System: s}
	return lc.ListenPacket(context.Background(), network, address)
}

// listenOptions are the settings of a listener that its descriptor does not have.
type listenOptions struct {
	backlog int
	period  time.Duration
	probes  net.KeepAliveConfig
}
