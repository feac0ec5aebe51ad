// SPDX-License-Identifier: MIT

//go:build !linux

package unet

import (
	"errors"
	"fmt"
	"net"
)

// errNoDriver is why there are no drivers here.
var errNoDriver = fmt.Errorf("sockets are driven on Linux only: %w", errors.ErrUnsupported)

// loop is never started here.
type loop struct{}

func (s *System) takeConn(c net.Conn, _ string) (net.Conn, error) { return c, nil }

func (s *System) takeListener(l net.Listener, _ string, _ listenOptions) (net.Listener, error) {
	return l, nil
}

func reusePort(int) error { return errNoDriver }
