// SPDX-License-Identifier: MIT

// Package accepttest has a listener for tests of servers.
package accepttest

import (
	"net"
	"os"
	"syscall"
)

// Full returns a listener whose first calls of Accept fail as they do where no descriptor or no
// memory is left. Accept must not be called concurrently.
func Full(l net.Listener) net.Listener {
	return &full{l, []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}}
}

type full struct {
	net.Listener
	left []syscall.Errno
}

func (f *full) Accept() (net.Conn, error) {
	if len(f.left) == 0 {
		return f.Listener.Accept()
	}
	errno := f.left[0]
	f.left = f.left[1:]
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: f.Addr(), Err: os.NewSyscallError("accept4", errno)}
}
