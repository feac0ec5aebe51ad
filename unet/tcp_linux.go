// SPDX-License-Identifier: MIT

package unet

import (
	"net"
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// TCPConn is a TCP connection with the methods of net.TCPConn. All methods may be called
// concurrently.
type TCPConn struct{ conn }

func (s *System) newTCPConn(fd int, network string, local, remote net.Addr) (*TCPConn, error) {
	c := &TCPConn{conn{network: network, local: local, remote: remote}}
	if err := c.open(s, fd); err != nil {
		return nil, err
	}
	closeDropped(c, &c.sock)
	return c, nil
}

// Close closes the connection. Waiting calls return an error that wraps net.ErrClosed,
// and Close returns after them. The kernel still sends data that was written (see
// [TCPConn.SetLinger]).
func (c *TCPConn) Close() error { return c.conn.Close() }

// CloseRead closes the reading side: reads return the data that has arrived, and then
// io.EOF.
func (c *TCPConn) CloseRead() error { return c.shutdown(syscall.SHUT_RD) }

// CloseWrite closes the writing side: the peer reads the data that was written, and then
// io.EOF.
func (c *TCPConn) CloseWrite() error { return c.shutdown(syscall.SHUT_WR) }

// set sets an option. The method of package net serves a young connection: it allocates nothing.
func set[T any](c *TCPConn, value T, own func(fd int, value T) error, young func(*net.TCPConn, T) error) error {
	if !c.lock.Acquire() {
		return c.opError("set", net.ErrClosed)
	}
	defer c.lock.Release()
	done, err := false, error(nil)
	if a := c.ofNet(); a != nil {
		done, err = c.afterYoung(&c.rd, young(a.file.(*net.TCPConn), value))
	}
	if !done {
		err = own(c.fd.Int(), value)
	}
	if err != nil {
		return c.opError("set", err)
	}
	return nil
}

// SetLinger sets what Close does with data that was not sent yet. With a negative number
// of seconds, the default, the kernel sends it in the background. With 0 the kernel
// discards it and resets the connection. With a positive number the kernel sends it for
// at most that time, and Close may wait for that.
func (c *TCPConn) SetLinger(seconds int) error {
	return set(c, seconds, setLinger, (*net.TCPConn).SetLinger)
}

// SetNoDelay sets whether small writes are sent at once. That is the default. Otherwise
// they are delayed and sent together (Nagle's algorithm).
func (c *TCPConn) SetNoDelay(on bool) error {
	return set(c, on, setNoDelay, (*net.TCPConn).SetNoDelay)
}

// SetKeepAlive sets whether the kernel sends keep-alive probes.
func (c *TCPConn) SetKeepAlive(on bool) error {
	return set(c, on, setKeepAlive, (*net.TCPConn).SetKeepAlive)
}

// SetKeepAlivePeriod sets how long a connection is idle before the first probe. The
// duration is rounded up to whole seconds. 0 means 15 seconds, and a negative value
// changes nothing.
func (c *TCPConn) SetKeepAlivePeriod(d time.Duration) error {
	return set(c, d, setKeepAliveIdle, (*net.TCPConn).SetKeepAlivePeriod)
}

// SetKeepAliveConfig configures keep-alive probes; see net.KeepAliveConfig.
func (c *TCPConn) SetKeepAliveConfig(k net.KeepAliveConfig) error {
	return set(c, k, setKeepAliveConfig, (*net.TCPConn).SetKeepAliveConfig)
}

// SetUserTimeout limits how long data that was sent may stay unacknowledged before the
// kernel ends the connection (TCP_USER_TIMEOUT, rounded up to milliseconds). 0 means the
// kernel's limit. [Dialer] and [ListenConfig] have a field UserTimeout.
func (c *TCPConn) SetUserTimeout(d time.Duration) error {
	if err := c.use(func(fd int) error { return userTimeout(fd, d) }); err != nil {
		return c.opError("set", err)
	}
	return nil
}

// MultipathTCP reports whether the connection uses MPTCP.
func (c *TCPConn) MultipathTCP() (multipath bool, err error) {
	err = c.use(func(fd int) error {
		multipath = sys.SockMPTCP(fd)
		return nil
	})
	return multipath, err
}

// Defaults of package net.
const (
	keepAliveTime   = 15 * time.Second
	keepAliveProbes = 9
)

func setOption(fd, level, option, value int) error {
	return os.NewSyscallError("setsockopt", sys.SetSockInt(fd, level, option, value))
}

func setLinger(fd, seconds int) error {
	return os.NewSyscallError("setsockopt", sys.SockLinger(fd, seconds))
}

func setNoDelay(fd int, on bool) error {
	return setOption(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, number(on))
}

func setKeepAlive(fd int, on bool) error {
	return setOption(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, number(on))
}

// setKeepAliveTime sets an option of the probes that is a time in seconds.
func setKeepAliveTime(fd, option int, d time.Duration) error {
	if d < 0 {
		return nil
	}
	if d == 0 {
		d = keepAliveTime
	}
	return setOption(fd, syscall.IPPROTO_TCP, option, int((d+time.Second-1)/time.Second))
}

func setKeepAliveIdle(fd int, d time.Duration) error {
	return setKeepAliveTime(fd, syscall.TCP_KEEPIDLE, d)
}

func setKeepAliveCount(fd, n int) error {
	if n < 0 {
		return nil
	}
	if n == 0 {
		n = keepAliveProbes
	}
	return setOption(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, n)
}

func setKeepAliveConfig(fd int, k net.KeepAliveConfig) error {
	if err := setKeepAlive(fd, k.Enable); err != nil {
		return err
	}
	if err := setKeepAliveIdle(fd, k.Idle); err != nil {
		return err
	}
	if err := setKeepAliveTime(fd, syscall.TCP_KEEPINTVL, k.Interval); err != nil {
		return err
	}
	return setKeepAliveCount(fd, k.Count)
}

// newConnOptions sets the options that package net sets on an accepted connection.
// As in package net, errors are ignored.
func newConnOptions(fd int, period time.Duration, k net.KeepAliveConfig) {
	_ = setNoDelay(fd, true)
	if !k.Enable && period >= 0 {
		k = net.KeepAliveConfig{Enable: true, Idle: period}
	}
	if k.Enable {
		_ = setKeepAliveConfig(fd, k)
	}
}

func number(on bool) int {
	if on {
		return 1
	}
	return 0
}
