// SPDX-License-Identifier: MIT

package event

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// listen opens a listening socket for each loop, or duplicates the given one, and
// returns their descriptors, in blocking mode as rings need. Without a listening socket
// they are -1.
func (s *Server) listen(address string) (fds []int, addr net.Addr, err error) {
	if s.network == "" {
		return slices.Repeat([]int{-1}, s.opts.Loops), nil, nil
	}
	lc := net.ListenConfig{}
	if s.opts.ListenConfig != nil {
		lc = *s.opts.ListenConfig
	}
	tcp := s.network != "unix"
	if tcp && s.opts.Loops > 1 {
		lc.Control = reusePort(lc.Control)
	}
	defer func() {
		if err != nil {
			closeFDs(fds)
			if s.given == nil {
				unlink(fileOf(addr))
			}
		}
	}()
	if s.given != nil {
		fd, err := dupFD(s.given)
		if err != nil {
			return fds, addr, err
		}
		fds, addr = append(fds, fd), s.given.Addr()
		if tcp {
			inherit(fd, &lc)
		}
	}
	for len(fds) < s.opts.Loops {
		if (!tcp || s.given != nil) && len(fds) > 0 {
			fd, err := sys.Dup(fds[0]) // an address can be bound once
			if err != nil {
				return fds, addr, err
			}
			fds = append(fds, fd)
			continue
		}
		var ln net.Listener
		err := bind(func() (err error) {
			ln, err = lc.Listen(context.Background(), s.network, address)
			return err
		})
		if err != nil {
			return fds, addr, err
		}
		addr = ln.Addr()
		address = addr.String() // the port that was chosen
		fd, err := takeFD(ln)
		if err != nil {
			return fds, addr, err
		}
		fds = append(fds, fd)
		if tcp {
			inherit(fd, &lc)
		}
	}
	return fds, addr, nil
}

// fileOf returns the path of a Unix socket that has a file, "" for others.
func fileOf(addr net.Addr) string {
	if u, ok := addr.(*net.UnixAddr); ok && u.Name != "" && u.Name[0] != '@' {
		return u.Name
	}
	return ""
}

// unlink removes the file of a Unix socket, if there is one.
func unlink(path string) {
	if path != "" {
		_ = os.Remove(path) // ignored, as in package net: only the socket counts
	}
}

// takeFD returns a descriptor of a listener, which it closes.
func takeFD(ln net.Listener) (int, error) {
	defer ln.Close()
	if u, ok := ln.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	return dupFD(ln)
}

// dupFD returns another descriptor of a socket, in blocking mode.
func dupFD(socket any) (int, error) {
	sc, ok := socket.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("event: %T has no descriptor (no method SyscallConn): pass the connection that it wraps", socket)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	dupErr := raw.Control(func(p uintptr) {
		if fd, err = sys.Dup(int(p)); err == nil {
			err = os.NewSyscallError("fcntl", syscall.SetNonblock(fd, false))
		}
	})
	if err = errors.Join(err, dupErr); err != nil && fd >= 0 {
		_ = syscall.Close(fd)
		fd = -1
	}
	return fd, err
}

// closeFDs closes descriptors that are not used after an error.
func closeFDs(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = syscall.SetNonblock(fd, true) // the mode that a given socket had
			_ = syscall.Close(fd)
		}
	}
}

// reusePort adds SO_REUSEPORT to the Control of a ListenConfig.
func reusePort(control func(string, string, syscall.RawConn) error) func(string, string, syscall.RawConn) error {
	return func(network, address string, raw syscall.RawConn) error {
		var err error
		ctlErr := raw.Control(func(fd uintptr) {
			err = os.NewSyscallError("setsockopt", sys.SockReusePort(int(fd)))
		})
		if err = errors.Join(err, ctlErr); err != nil || control == nil {
			return err
		}
		return control(network, address, raw)
	}
}

// inherit sets on the listening socket the options that package net sets on each
// accepted connection: accepted sockets inherit them.
func inherit(fd int, lc *net.ListenConfig) {
	set := func(level, name, value int) { _ = syscall.SetsockoptInt(fd, level, name, value) }
	set(syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	ka := lc.KeepAliveConfig
	if !ka.Enable {
		if lc.KeepAlive < 0 {
			return
		}
		ka = net.KeepAliveConfig{Idle: lc.KeepAlive}
	}
	set(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1)
	for _, o := range []struct {
		name int
		d    time.Duration
	}{{syscall.TCP_KEEPIDLE, ka.Idle}, {syscall.TCP_KEEPINTVL, ka.Interval}} {
		switch {
		case o.d == 0:
			set(syscall.IPPROTO_TCP, o.name, defaultKeepAlive)
		case o.d > 0:
			set(syscall.IPPROTO_TCP, o.name, int((o.d+time.Second-1)/time.Second))
		}
	}
	switch {
	case ka.Count == 0:
		set(syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, defaultKeepAliveCount)
	case ka.Count > 0:
		set(syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, ka.Count)
	}
}

// Package net's defaults: seconds, and a number of probes.
const (
	defaultKeepAlive      = 15
	defaultKeepAliveCount = 9
)
