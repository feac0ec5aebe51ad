// SPDX-License-Identifier: MIT

package unet

import (
	"io"
	"net"
	"os"
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

// netSocket is any socket of package net.
type netSocket interface {
	syscall.Conn
	io.Closer
}

// attach moves a socket of package net to whole, whose sock is sk: it takes a
// duplicate of the descriptor and closes old. On failure old is unchanged.
func attach[T any](s *System, old netSocket, whole *T, sk *sock) error {
	if err := sk.watchCopyOf(s, old); err != nil {
		return err
	}
	_ = old.Close() // the duplicate keeps the socket open
	closeDropped(whole, sk)
	return nil
}

// refused handles a socket of package net that could not be attached, for example
// for lack of descriptors. In ModeAuto the socket remains package net's and refused
// returns nil. In other modes refused closes it and returns err.
func (s *System) refused(old io.Closer, err error) error {
	if err == nil || s.opts.Mode == ModeAuto {
		return nil
	}
	_ = old.Close() // the first error counts
	return err
}

// attachConn returns a connection of the system for one of package net. A type that
// the system does not drive is returned unchanged.
func (s *System) attachConn(old net.Conn, network string) (net.Conn, error) {
	if s.mode == ModeNet {
		return old, nil
	}
	local, remote := old.LocalAddr(), old.RemoteAddr()
	var c net.Conn
	var err error
	switch o := old.(type) {
	case *net.TCPConn:
		t := &TCPConn{conn{network: network, local: local, remote: remote}}
		c, err = t, attach(s, o, t, &t.sock)
	case *net.UnixConn:
		if network == "unixgram" {
			c, err = s.attachDatagrams(o, network)
			break
		}
		u := &UnixConn{conn{network: network, local: local, remote: remote}}
		u.moreLikely.Store(true) // see newUnixConn
		c, err = u, attach(s, o, u, &u.sock)
	case *net.UDPConn:
		c, err = s.attachDatagrams(o, network)
	default:
		return old, nil
	}
	if err == nil {
		return c, nil
	}
	if err := s.refused(old, err); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Source: local, Addr: remote, Err: err}
	}
	return old, nil
}

// attachListener returns a listener of the system for one of package net.
func (s *System) attachListener(old net.Listener, network string, o listenOptions) (net.Listener, error) {
	if err := o.setBacklog(old); err != nil {
		_ = old.Close()
		return nil, &net.OpError{Op: "listen", Net: network, Addr: old.Addr(), Err: err}
	}
	if s.mode == ModeNet {
		return old, nil
	}
	var l net.Listener
	var err error
	switch old := old.(type) {
	case *net.TCPListener:
		t := &TCPListener{listener: listener{network: network, local: old.Addr()}, period: o.period, probes: o.probes}
		l, err = t, attach(s, old, t, &t.sock)
	case *net.UnixListener:
		u := &UnixListener{listener: listener{network: network, local: old.Addr()}, unlink: true}
		old.SetUnlinkOnClose(false)
		if l, err = u, attach(s, old, u, &u.sock); err != nil {
			old.SetUnlinkOnClose(true)
		}
	default:
		return old, nil
	}
	if err == nil {
		return l, nil
	}
	if err := s.refused(old, err); err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: old.Addr(), Err: err}
	}
	return old, nil
}

// setBacklog sets the backlog of a listener of package net.
func (o *listenOptions) setBacklog(l net.Listener) error {
	c, ok := l.(syscall.Conn)
	if o.backlog <= 0 || !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var listenErr error
	if err := raw.Control(func(fd uintptr) { listenErr = sys.SockListen(int(fd), o.backlog) }); err != nil {
		return err
	}
	return os.NewSyscallError("listen", listenErr)
}
