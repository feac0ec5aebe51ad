// SPDX-License-Identifier: MIT

package unet

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

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

// listenOptions are what a listener needs beyond its descriptor.
type listenOptions struct {
	backlog int
	period  time.Duration
	probes  net.KeepAliveConfig
}
