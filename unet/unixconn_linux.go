// SPDX-License-Identifier: MIT

package unet

import (
	"net"
	"runtime"
)

// UnixConn is a connection of the Unix family, of a stream ("unix") or of
// messages in sequence ("unixpacket"). All methods may be called concurrently.
type UnixConn struct{ conn }

func (s *System) newUnixConn(fd int, network string, local, remote net.Addr) (*UnixConn, error) {
	c := &UnixConn{conn{network: network, local: local, remote: remote}}
	c.wary.Store(true) // what one call sent with descriptors is never joined with the rest
	if err := c.open(s, fd); err != nil {
		return nil, err
	}
	closeDropped(c)
	return c, nil
}

// Close closes the connection. Calls that wait return with an error that wraps
// net.ErrClosed, and Close returns when all have.
func (c *UnixConn) Close() error {
	runtime.SetFinalizer(c, nil)
	return c.conn.Close()
}
