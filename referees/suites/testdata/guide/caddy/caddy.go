// SPDX-License-Identifier: MIT

// Package caddy has the lines of docs/guide-http.md for Caddy.
package caddy

import (
	"context"
	"net"
	"syscall"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/unet"
)

func init() {
	caddy.RegisterNetwork("unet", func(ctx context.Context, _, host, portRange string, offset uint, _ net.ListenConfig) (any, error) {
		a, err := caddy.ParseNetworkAddress(net.JoinHostPort(host, portRange))
		if err != nil {
			return nil, err
		}
		f := func(_, _ string, c syscall.RawConn) (err error) {
			// A reload binds the address again before it closes the first listener.
			cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
			if err == nil {
				err = cerr
			}
			return err
		}
		lc := unet.ListenConfig{Control: f}
		return lc.Listen(ctx, "tcp", a.JoinHostPort(offset))
	})
}
