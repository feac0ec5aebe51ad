// SPDX-License-Identifier: MIT

package unet

import (
	"io"
	"net"
	"runtime"
	"syscall"
)

// drive moves a socket of package net to the system. A type that the system does not
// drive is returned unchanged, and so is old on failure.
func (s *System) drive(old io.Closer, network string, o listenOptions) (io.Closer, error) {
	switch old := old.(type) {
	case *net.TCPConn:
		c := &bornTCP{c: TCPConn{conn{network: network, local: old.LocalAddr(), remote: old.RemoteAddr()}}}
		return s.born(old, &c.c, &c.c.sock, &c.first)
	case *net.UnixConn:
		if network == "unixgram" {
			return newUnixgramConn(old)
		}
		c := &bornUnix{c: UnixConn{conn{network: network, local: old.LocalAddr(), remote: old.RemoteAddr()}}}
		c.c.moreLikely.Store(true) // see newUnixConn
		return s.born(old, &c.c, &c.c.sock, &c.first)
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
// only one poller watches the socket. On failure old is unchanged.
func (s *sock) takeOver(system *System, old netSocket) error {
	fd, err := dupConn(old)
	if err != nil {
		return err
	}
	if err := s.open(system, fd); err != nil {
		return err
	}
	_ = old.Close() // the duplicate keeps the socket open
	return nil
}

// bornTCP and bornUnix are a young connection and how it waits, in one piece of memory.
type (
	bornTCP struct {
		c     TCPConn // first: the program may set a finalizer
		first alone
	}
	bornUnix struct {
		c     UnixConn
		first alone
	}
)

// born is take for a connection, which is young: its Read and Write are those of old at first, so
// that a call over a new connection costs what it costs with package net.
func (s *System) born(old netFile, whole io.Closer, sk *sock, a *alone) (io.Closer, error) {
	l, err := s.acquire()
	if err != nil {
		return old, err
	}
	a.file = old
	sk.loop, sk.alone = l, a
	sk.rd.mode.Store(young)
	sk.wr.mode.Store(young)
	runtime.SetFinalizer(old, l.freeYoung) // allocates nothing, unlike a cleanup; the program never has old
	return whole, nil
}
