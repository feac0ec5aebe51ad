// SPDX-License-Identifier: MIT

package unet

import (
	"io"
	"net"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// dupConn copies the descriptor of a socket of package net's.
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

// netSocket is what all sockets of package net's are.
type netSocket interface {
	syscall.Conn
	io.Closer
}

// take makes whole, whose socket is sk, of a socket of package net's, which it
// closes. When it fails, old is as it was.
func take[T any](s *System, old netSocket, whole *T, sk *sock) error {
	if err := sk.takeOver(s, old); err != nil {
		return err
	}
	_ = old.Close() // the copy is what counts
	closeDropped(whole, sk)
	return nil
}

// refused decides what becomes of a socket of package net's that could not be
// taken, as for want of descriptors: where the system was free to choose it stays
// package net's, and refused returns nil; otherwise it is closed.
func (s *System) refused(old io.Closer, err error) error {
	if err == nil || s.opts.Mode == ModeAuto {
		return nil
	}
	_ = old.Close() // the first error counts
	return err
}

// takeConn makes a connection of package net one of the system's. What the
// system does not know it leaves as it is.
func (s *System) takeConn(old net.Conn, network string) (net.Conn, error) {
	if s.mode == ModeNet {
		return old, nil
	}
	local, remote := old.LocalAddr(), old.RemoteAddr()
	var c net.Conn
	var err error
	switch o := old.(type) {
	case *net.TCPConn:
		t := &TCPConn{conn{network: network, local: local, remote: remote}}
		c, err = t, take(s, o, t, &t.sock)
	case *net.UnixConn:
		if network == "unixgram" {
			c, err = s.takeDatagrams(o, network)
			break
		}
		u := &UnixConn{conn{network: network, local: local, remote: remote}}
		u.wary.Store(true) // see newUnixConn
		c, err = u, take(s, o, u, &u.sock)
	case *net.UDPConn:
		c, err = s.takeDatagrams(o, network)
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

// takeListener makes a listener of package net one of the system's.
func (s *System) takeListener(old net.Listener, network string, o listenOptions) (net.Listener, error) {
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
		l, err = t, take(s, old, t, &t.sock)
	case *net.UnixListener:
		u := &UnixListener{listener: listener{network: network, local: old.Addr()}, unlink: true}
		old.SetUnlinkOnClose(false)
		if l, err = u, take(s, old, u, &u.sock); err != nil {
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

// setBacklog changes the backlog of a listener of package net's.
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
