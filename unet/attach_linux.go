// SPDX-License-Identifier: MIT

package unet

import (
	"io"
	"net"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// dupConn duplicates the descriptor of a socket of package net.
func dupConn(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var dupErr error
	if err := raw.Control(func(old uintptr) { fd, dupErr = sys.Dup(int(old)) }); err != nil {
		return -1, err
	}
	return fd, syscallError("dup", dupErr)
}

// drive moves a socket of package net to the system. A type that the system does not
// drive is returned unchanged, and so is old on failure.
func (s *System) drive(old io.Closer, network string, o listenOptions) (io.Closer, error) {
	switch old := old.(type) {
	case *net.TCPConn:
		c := &TCPConn{conn{network: network, local: old.LocalAddr(), remote: old.RemoteAddr()}}
		return take(s, old, c, &c.sock)
	case *net.UnixConn:
		if network == "unixgram" {
			return newUnixgramConn(old)
		}
		c := &UnixConn{conn{network: network, local: old.LocalAddr(), remote: old.RemoteAddr()}}
		c.moreLikely.Store(true) // see newUnixConn
		return take(s, old, c, &c.sock)
	case *net.UDPConn:
		return newUDPConn(old, network)
	case *net.TCPListener:
		l := &TCPListener{listener: listener{network: network, local: old.Addr()}, period: o.period, probes: o.probes}
		return take(s, old, l, &l.sock)
	case *net.UnixListener:
		l := &UnixListener{listener: listener{network: network, local: old.Addr()}, unlink: o.unlink}
		old.SetUnlinkOnClose(false)
		c, err := take(s, old, l, &l.sock)
		if err != nil {
			old.SetUnlinkOnClose(o.unlink)
		}
		return c, err
	}
	return old, nil
}

// netSocket is any socket of package net.
type netSocket interface {
	syscall.Conn
	io.Closer
}

// take moves a socket of package net to whole, whose sock is sk. On failure it returns
// old, which is unchanged.
func take[T any, P interface {
	*T
	io.Closer
}](s *System, old netSocket, whole P, sk *sock) (io.Closer, error) {
	if err := sk.takeOver(s, old); err != nil {
		return old, err
	}
	closeDropped((*T)(whole), sk)
	return whole, nil
}

// takeOver makes the socket use a duplicate of the descriptor of old, and closes old, so that
// only one poller watches the socket. A connection that is the first socket of its loop waits
// alone from the beginning, and keeps old for that. On failure old is unchanged.
func (s *sock) takeOver(system *System, old netSocket) error {
	l, err := system.acquire()
	if err != nil {
		return err
	}
	fd, err := dupConn(old)
	if err != nil {
		system.release()
		return err
	}
	if s.beginAlone(l, fd, old) {
		return nil
	}
	if err := s.watch(l, fd); err != nil {
		return err
	}
	_ = old.Close() // the duplicate keeps the socket open
	return nil
}
