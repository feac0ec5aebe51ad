// SPDX-License-Identifier: MIT

package features

import (
	"os"
	"syscall"
)

// files are descriptors that a trial opened.
type files []int

func (f *files) add(fd ...int) { *f = append(*f, fd...) }

func (f *files) close() {
	for _, fd := range *f {
		_ = syscall.Close(fd) // nothing was written that could be lost
	}
	*f = nil
}

// pair returns two connected stream sockets.
func (f *files) pair() (a, b int, err error) {
	p, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, os.NewSyscallError("socketpair", err)
	}
	f.add(p[0], p[1])
	return p[0], p[1], nil
}

// inet returns a socket of the Internet family that the kernel has, and its
// loopback address with port 0.
func (f *files) inet(typ int) (int, syscall.Sockaddr, error) {
	addrs := []struct {
		family int
		addr   syscall.Sockaddr
	}{
		{syscall.AF_INET, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}},
		{syscall.AF_INET6, &syscall.SockaddrInet6{Addr: [16]byte{15: 1}}},
	}
	var err error
	for _, a := range addrs {
		var fd int
		if fd, err = syscall.Socket(a.family, typ|syscall.SOCK_CLOEXEC, 0); err == nil {
			f.add(fd)
			return fd, a.addr, nil
		}
	}
	return -1, nil, os.NewSyscallError("socket", err)
}

// tcp returns a TCP socket that is not connected.
func (f *files) tcp() (int, error) {
	fd, _, err := f.inet(syscall.SOCK_STREAM)
	return fd, err
}

// udp returns a UDP socket on the loopback that is connected to itself.
func (f *files) udp() (int, error) {
	fd, addr, err := f.inet(syscall.SOCK_DGRAM)
	if err != nil {
		return -1, err
	}
	if err := syscall.Bind(fd, addr); err != nil {
		return -1, os.NewSyscallError("bind", err)
	}
	if addr, err = syscall.Getsockname(fd); err != nil {
		return -1, os.NewSyscallError("getsockname", err)
	}
	return fd, os.NewSyscallError("connect", syscall.Connect(fd, addr))
}

// listener returns a socket that listens and another that has connected to it.
func (f *files) listener() (int, error) {
	const typ = syscall.SOCK_STREAM | syscall.SOCK_CLOEXEC
	l, err := syscall.Socket(syscall.AF_UNIX, typ, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	f.add(l)
	// Without a name the kernel picks one that no file stands for.
	if err := syscall.Bind(l, &syscall.SockaddrUnix{}); err != nil {
		return -1, os.NewSyscallError("bind", err)
	}
	if err := syscall.Listen(l, 1); err != nil {
		return -1, os.NewSyscallError("listen", err)
	}
	name, err := syscall.Getsockname(l)
	if err != nil {
		return -1, os.NewSyscallError("getsockname", err)
	}
	c, err := syscall.Socket(syscall.AF_UNIX, typ, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	f.add(c)
	return l, os.NewSyscallError("connect", syscall.Connect(c, name))
}

// send writes a few bytes into a socket that has room for them.
func (f *files) send(fd int, p []byte) error {
	_, err := syscall.Write(fd, p)
	return os.NewSyscallError("write", err)
}

const (
	acceptCloexec = syscall.SOCK_CLOEXEC
	solSocket     = syscall.SOL_SOCKET
	soType        = syscall.SO_TYPE
	sockStream    = syscall.SOCK_STREAM
)
