// SPDX-License-Identifier: MIT

//go:build ignore

package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/panjf2000/gnet/v2"
)

type server struct {
	gnet.BuiltinEventEngine
	booted chan gnet.Engine
}

func (s *server) OnBoot(e gnet.Engine) gnet.Action {
	s.booted <- e
	return gnet.None
}

func (s *server) OnTraffic(c gnet.Conn) gnet.Action {
	p, err := c.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err := c.Write(p); err != nil {
		return gnet.Close
	}
	return gnet.None
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	// The library logs to standard output, which belongs to the protocol with the parent process.
	out, err := syscall.Dup(1)
	if err != nil {
		fail(err)
	}
	if err := syscall.Dup3(2, 1, 0); err != nil {
		fail(err)
	}
	os.Stdout = os.NewFile(uintptr(out), "stdout")
	s := &server{booted: make(chan gnet.Engine, 1)}
	options := []gnet.Option{gnet.WithMulticore(true)}
	if len(os.Args) > 1 && os.Args[1] == "one" {
		options = []gnet.Option{gnet.WithNumEventLoop(1)}
	}
	go func() { fail(gnet.Run(s, "tcp://127.0.0.1:0", options...)) }()
	fd, err := (<-s.booted).Dup()
	if err != nil {
		fail(err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		fail(err)
	}
	talk(fmt.Sprintf("127.0.0.1:%d", addr.(*syscall.SockaddrInet4).Port), "epoll")
}
