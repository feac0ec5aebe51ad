// SPDX-License-Identifier: MIT

package unet

import (
	"context"
	"net"
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
