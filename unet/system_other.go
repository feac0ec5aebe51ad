// SPDX-License-Identifier: MIT

//go:build !linux

package unet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// errNoDriver is the reason why there are no drivers here.
var errNoDriver = fmt.Errorf("sockets are driven on Linux only: %w", errors.ErrUnsupported)

// These types are never created here.
type (
	loop struct{}
	pipe struct{}
)

func (*loop) stats() Stats { return Stats{} }

// On these systems the types of this package are package net's.
type (
	TCPConn      = net.TCPConn
	TCPListener  = net.TCPListener
	UDPConn      = net.UDPConn
	UnixConn     = net.UnixConn
	UnixgramConn = net.UnixConn
	UnixListener = net.UnixListener
)

// drive is not called: every system uses package net.
func (s *System) drive(old io.Closer, _ string, _ listenOptions) (io.Closer, error) { return old, nil }

func userTimeout(int, time.Duration) error { return errNoDriver }
