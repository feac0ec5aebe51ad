// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// takeFD copies the descriptor of something of package net's and closes that,
// so that one poller is left to watch the socket.
func takeFD(c interface {
	syscall.Conn
	Close() error
}) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err == nil {
		var dupErr error
		err = raw.Control(func(old uintptr) { fd, dupErr = sys.Dup(int(old)) })
		err = errors.Join(err, dupErr)
	}
	if closeErr := c.Close(); err == nil && closeErr != nil {
		_ = syscall.Close(fd)
		err = closeErr
	}
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// takeConn makes a connection of package net one of the system's. What the
// system does not know it leaves as it is.
func (s *System) takeConn(c net.Conn, network string) (net.Conn, error) {
	if s.mode == ModeNet {
		return c, nil
	}
	if network == "unixgram" || strings.HasPrefix(network, "udp") {
		return s.takeDialed(c, network)
	}
	local, remote := c.LocalAddr(), c.RemoteAddr()
	switch c := c.(type) {
	case *net.TCPConn:
		fd, err := takeFD(c)
		if err != nil {
			return nil, dialError(network, local, remote, err)
		}
		t, err := s.newTCPConn(fd, network, local, remote)
		if err != nil {
			return nil, dialError(network, local, remote, err)
		}
		return t, nil
	case *net.UnixConn:
		fd, err := takeFD(c)
		if err != nil {
			return nil, dialError(network, local, remote, err)
		}
		u, err := s.newUnixConn(fd, network, local, remote)
		if err != nil {
			return nil, dialError(network, local, remote, err)
		}
		return u, nil
	}
	return c, nil
}

// takeDialed is takeConn for datagrams.
func (s *System) takeDialed(c net.Conn, network string) (net.Conn, error) {
	d, err := s.takeDatagrams(c, network)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return c, nil
	}
	return d, nil
}

func dialError(network string, local, remote net.Addr, err error) error {
	return &net.OpError{Op: "dial", Net: network, Source: local, Addr: remote, Err: err}
}

// takeListener makes a listener of package net one of the system's.
func (s *System) takeListener(l net.Listener, network string, o listenOptions) (net.Listener, error) {
	if s.mode == ModeNet {
		if err := o.setBacklog(l); err != nil {
			_ = l.Close()
			return nil, err
		}
		return l, nil
	}
	local := l.Addr()
	switch l := l.(type) {
	case *net.TCPListener:
		t := &TCPListener{listener: listener{network: network, local: local}, period: o.period, probes: o.probes}
		if err := t.takeOver(s, l, o.backlog); err != nil {
			return nil, err
		}
		closeDropped(t)
		return t, nil
	case *net.UnixListener:
		u := &UnixListener{listener: listener{network: network, local: local}, unlink: true}
		l.SetUnlinkOnClose(false)
		if err := u.takeOver(s, l, o.backlog); err != nil {
			_ = syscall.Unlink(addrString(local)) // nobody else would
			return nil, err
		}
		closeDropped(u)
		return u, nil
	}
	return l, nil
}

// takeOver begins to watch the descriptor of a listener of package net.
func (l *listener) takeOver(s *System, old interface {
	syscall.Conn
	Close() error
}, backlog int) error {
	fd, err := takeFD(old)
	if err != nil {
		return l.opError("listen", err)
	}
	if backlog > 0 {
		if err := sys.SockListen(fd, backlog); err != nil {
			_ = syscall.Close(fd)
			return l.opError("listen", os.NewSyscallError("listen", err))
		}
	}
	if err := l.open(s, fd); err != nil {
		return l.opError("listen", err)
	}
	return nil
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
	err = raw.Control(func(fd uintptr) { listenErr = sys.SockListen(int(fd), o.backlog) })
	return errors.Join(err, os.NewSyscallError("listen", listenErr))
}
