// SPDX-License-Identifier: MIT

//go:build !linux

package unet

import (
	"errors"
	"fmt"
	"net"
)

// errNoDriver is the reason why there are no drivers here.
var errNoDriver = fmt.Errorf("sockets are driven on Linux only: %w", errors.ErrUnsupported)

// Neither is created here.
type (
	loop struct{}
	pipe struct{}
)

func (s *System) attachConn(c net.Conn, _ string) (net.Conn, error) { return c, nil }

func (s *System) attachListener(l net.Listener, _ string, _ listenOptions) (net.Listener, error) {
	return l, nil
}

func (s *System) attachPacketConn(c net.PacketConn, _ string) (net.PacketConn, error) {
	return c, nil
}

func reusePort(int) error { return errNoDriver }
