// SPDX-License-Identifier: MIT

package unet

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// listener is the common part of the listeners of both families.
type listener struct {
	sock
	network string
	local   net.Addr
}

func (l *listener) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: l.network, Addr: l.local, Err: err}
}

// accept waits for a connection and returns its descriptor and the peer.
func (l *listener) accept() (fd int, peer sockaddr, err error) {
	fd, err = l.acceptTo(&peer)
	if err != nil {
		return -1, peer, l.opError("accept", err)
	}
	return fd, peer, nil
}

// acceptTo is accept with unwrapped errors. It stores the peer's address in peer.
func (l *listener) acceptTo(peer *sockaddr) (int, error) {
	h := &l.rd
	if err := l.begin(h); err != nil {
		return -1, err
	}
	defer l.end(h)
	for {
		if err := l.check(h); err != nil {
			return -1, err
		}
		h.ready.Store(false)
		fd, n, errno := sys.SockAccept(l.fd.Int(), peer.b[:])
		switch errno {
		case 0:
			h.ready.Store(true) // more connections may wait
			peer.n = n
			return fd, nil
		case syscall.EAGAIN:
			if _, err := l.wait(h, nil); err != nil {
				return -1, err
			}
		case syscall.EINTR, syscall.ECONNABORTED:
		default:
			h.ready.Store(true)
			return -1, callError("accept4", errno)
		}
	}
}

// Addr returns the listener's address. Do not change it.
func (l *listener) Addr() net.Addr { return l.local }

// SetDeadline sets the time after which Accept fails with an error that wraps
// os.ErrDeadlineExceeded. The zero time means no deadline.
func (l *listener) SetDeadline(t time.Time) error {
	return l.setDeadline(t, true, true) // not wrapped, as in package net
}

// File returns a file that uses a duplicate of the descriptor. The caller must close it.
func (l *listener) File() (f *os.File, err error) {
	err = l.use(func(fd int) (err error) {
		f, err = dupFile(fd, listenerFile)
		return err
	})
	if err != nil {
		return nil, l.opError("file", err)
	}
	return f, nil
}

// SyscallConn returns access to the descriptor. Only Control works, as in package
// net.
func (l *listener) SyscallConn() (syscall.RawConn, error) {
	return &rawListener{rawConn{&l.sock, l.opError}}, nil
}

func (l *listener) close() error {
	if err := l.sock.close(); err != nil {
		return l.opError("close", err)
	}
	return nil
}

// TCPListener accepts TCP connections. All methods may be called concurrently.
type TCPListener struct {
	listener
	period time.Duration
	probes net.KeepAliveConfig
}

// Accept waits for a connection and returns a *TCPConn. If descriptors are lacking, the
// error is temporary. After any error except that of a closed listener Accept may be called
// again.
func (l *TCPListener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptTCP is Accept with a concrete type.
func (l *TCPListener) AcceptTCP() (*TCPConn, error) {
	fd, peer, err := l.accept()
	if err != nil {
		return nil, err
	}
	newConnOptions(fd, l.period, l.probes)
	local, remote := tcpAddrs(fd, &peer)
	c, err := l.loop.system.newTCPConn(fd, l.network, local, remote)
	if err != nil {
		return nil, l.opError("accept", err)
	}
	c.rd.ready.Store(true) // the first request has often arrived with the connection
	return c, nil
}

// Close stops listening. Waiting calls return an error that wraps net.ErrClosed. Accepted
// connections stay open.
func (l *TCPListener) Close() error { return l.close() }

// UnixListener accepts Unix connections. All methods may be called concurrently.
type UnixListener struct {
	listener
	unlink     bool
	unlinkOnce sync.Once
}

// Accept waits for a connection and returns a *UnixConn. If descriptors are lacking, the
// error is temporary. After any error except that of a closed listener Accept may be called
// again.
func (l *UnixListener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptUnix is Accept with a concrete type.
func (l *UnixListener) AcceptUnix() (*UnixConn, error) {
	fd, peer, err := l.accept()
	if err != nil {
		return nil, err
	}
	c, err := l.loop.system.newUnixConn(fd, l.network, localAddr(fd, l.network), peer.addr(l.network))
	if err != nil {
		return nil, l.opError("accept", err)
	}
	return c, nil
}

// SetUnlinkOnClose sets whether Close removes the socket's file. That is the default,
// except for listeners of [FileListener]. It must not be called concurrently with Close.
func (l *UnixListener) SetUnlinkOnClose(unlink bool) { l.unlink = unlink }

// Close stops listening and removes the socket's file (see
// [UnixListener.SetUnlinkOnClose]). Waiting calls return an error that wraps
// net.ErrClosed. Accepted connections stay open.
func (l *UnixListener) Close() error {
	l.unlinkOnce.Do(func() {
		if path := addrString(l.local); l.unlink && path != "" && path[0] != '@' {
			_ = syscall.Unlink(path) // ignored, as in package net: Close returns the socket's error
		}
	})
	return l.close()
}
