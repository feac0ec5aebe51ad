// SPDX-License-Identifier: MIT

package unet

import (
	"net"
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// Defaults of package net.
const (
	keepAliveTime   = 15 * time.Second
	keepAliveProbes = 9
)

func setOption(fd, level, option, value int) error {
	return os.NewSyscallError("setsockopt", sys.SetSockInt(fd, level, option, value))
}

func setNoDelay(fd int, on bool) error {
	return setOption(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, number(on))
}

func setKeepAlive(fd int, on bool) error {
	return setOption(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, number(on))
}

// setKeepAliveTime sets one of the times of the probes, which the kernel has in
// seconds.
func setKeepAliveTime(fd, option int, d time.Duration) error {
	if d < 0 {
		return nil
	}
	if d == 0 {
		d = keepAliveTime
	}
	return setOption(fd, syscall.IPPROTO_TCP, option, int((d+time.Second-1)/time.Second))
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
	if err := setKeepAliveTime(fd, syscall.TCP_KEEPIDLE, k.Idle); err != nil {
		return err
	}
	if err := setKeepAliveTime(fd, syscall.TCP_KEEPINTVL, k.Interval); err != nil {
		return err
	}
	return setKeepAliveCount(fd, k.Count)
}

// newConnOptions sets what package net sets on a connection that it accepted.
// Like there, a connection that refuses is used all the same.
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
