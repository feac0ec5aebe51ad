// SPDX-License-Identifier: MIT

package event

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// rings is the engine of a server with io_uring.
type rings struct {
	tally
	loops   []*loop
	aborted atomic.Bool
	unlink  string // the path of a Unix socket
}

// startRing starts a server with io_uring.
func (s *Server) startRing(address string) error {
	r := &rings{}
	listeners, addr, err := s.listen(address)
	if err != nil {
		return err
	}
	for _, fd := range listeners {
		l := &loop{server: s, rings: r, listen: listener{fd: fd}}
		if err = l.open1(); err != nil {
			break
		}
		r.loops = append(r.loops, l)
	}
	if err != nil {
		return errors.Join(err, r.undo(listeners))
	}
	s.addr, s.name, s.engine = addr, "io_uring", r
	if ua, ok := addr.(*net.UnixAddr); ok && ua.Name != "" && ua.Name[0] != '@' {
		r.unlink = ua.Name
	}
	for _, l := range r.loops {
		r.wg.Go(l.run)
	}
	r.closeWhenDone(func() {
		if r.unlink != "" {
			_ = os.Remove(r.unlink)
		}
	})
	return nil
}

// undo closes what was opened in vain.
func (r *rings) undo(listeners []int) error {
	var err error
	for _, l := range r.loops {
		err = errors.Join(err, l.file.Close(), l.ring.Close())
	}
	for _, fd := range listeners {
		err = errors.Join(err, syscall.Close(fd))
	}
	return err
}

// open1 opens the ring and what belongs to it.
func (l *loop) open1() (err error) {
	o := &l.server.opts
	l.ring, err = openSmaller(&uring.Options{
		Entries: sqEntries, CQEntries: cqEntries, Clamp: true, SubmitAll: true, NoIOWait: true,
		SQPoll: o.SQPoll, CoopTaskrun: !o.SQPoll, TaskrunFlag: o.Spin > 0 && !o.SQPoll,
	})
	if err != nil {
		return err
	}
	l.bufs, err = l.ring.NewBufRing(uring.BufRingOptions{Entries: o.Buffers, BufSize: o.BufferSize})
	if err == nil {
		err = l.poll()
	}
	if err != nil {
		return errors.Join(err, l.ring.Close())
	}
	l.post(l.armAccept)
	return nil
}

// openSmaller opens a ring, a smaller one where the memlock limit asks for it.
func openSmaller(o *uring.Options) (*uring.Ring, error) {
	for {
		r, err := uring.Open(o)
		if !errors.Is(err, syscall.ENOMEM) || o.Entries <= 4*reserve {
			return r, err
		}
		o.Entries, o.CQEntries = o.Entries/2, o.CQEntries/2
	}
}

// poll gives a duplicate of the ring's descriptor to the netpoller, because an
// os.File closes what it owns.
func (l *loop) poll() error {
	fd, err := sys.Dup(l.ring.FD())
	if err != nil {
		return err
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // what makes os poll it
		return errors.Join(os.NewSyscallError("fcntl", err), syscall.Close(fd))
	}
	l.file = os.NewFile(uintptr(fd), "io_uring")
	if err := l.file.SetReadDeadline(time.Time{}); err != nil {
		return errors.Join(fmt.Errorf("poll the ring's descriptor: %w", err), l.file.Close())
	}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		return errors.Join(err, l.file.Close())
	}
	return nil
}

func (r *rings) shutdown() {
	for _, l := range r.loops {
		l.post(l.leaveAll)
	}
}

func (r *rings) abort() {
	r.aborted.Store(true)
	r.shutdown()
}

func (r *rings) done() <-chan struct{} { return r.over }

func (r *rings) stats() Stats {
	var s Stats
	for _, l := range r.loops {
		s.add(l.count.stats())
	}
	return s
}

// listen opens a listening socket for each loop and returns their descriptors,
// in blocking mode as rings want them.
func (s *Server) listen(address string) (fds []int, addr net.Addr, err error) {
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
			for _, fd := range fds {
				_ = syscall.Close(fd)
			}
		}
	}()
	for len(fds) < s.opts.Loops {
		if !tcp && len(fds) > 0 {
			fd, err := sys.Dup(fds[0]) // a path can be bound once
			if err != nil {
				return fds, nil, err
			}
			fds = append(fds, fd)
			continue
		}
		ln, err := lc.Listen(context.Background(), s.network, address)
		if err != nil {
			return fds, nil, err
		}
		addr = ln.Addr()
		address = addr.String() // the port that was chosen
		fd, err := takeFD(ln)
		if err != nil {
			return fds, nil, err
		}
		fds = append(fds, fd)
		if tcp {
			inherit(fd, &lc)
		}
	}
	return fds, addr, nil
}

// takeFD turns a listener into a descriptor.
func takeFD(ln net.Listener) (int, error) {
	defer ln.Close()
	if u, ok := ln.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	raw, err := ln.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	dupErr := raw.Control(func(p uintptr) {
		if fd, err = sys.Dup(int(p)); err == nil {
			err = os.NewSyscallError("fcntl", syscall.SetNonblock(fd, false))
		}
	})
	return fd, errors.Join(err, dupErr)
}

// reusePort adds SO_REUSEPORT to what a ListenConfig does to its sockets.
func reusePort(control func(string, string, syscall.RawConn) error) func(string, string, syscall.RawConn) error {
	return func(network, address string, raw syscall.RawConn) error {
		var err error
		ctlErr := raw.Control(func(fd uintptr) {
			err = os.NewSyscallError("setsockopt", sys.SetReusePort(int(fd)))
		})
		if err = errors.Join(err, ctlErr); err != nil || control == nil {
			return err
		}
		return control(network, address, raw)
	}
}

// inherit sets on a listening socket what package net sets on each connection
// that it accepts: connections inherit it.
func inherit(fd int, lc *net.ListenConfig) {
	set := func(level, name, value int) { _ = syscall.SetsockoptInt(fd, level, name, value) }
	set(syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	ka := lc.KeepAliveConfig
	if !ka.Enable {
		if lc.KeepAlive < 0 {
			return
		}
		ka.Idle, ka.Interval = lc.KeepAlive, lc.KeepAlive
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
