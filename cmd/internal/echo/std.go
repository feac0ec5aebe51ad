// SPDX-License-Identifier: MIT

package echo

import "net"

// stdServer is package net: a goroutine for each connection.
type stdServer struct{ ln net.Listener }

func startStd() (Server, error) {
	ln, err := net.Listen("tcp", loopback)
	if err != nil {
		return nil, err
	}
	go serve(ln)
	return &stdServer{ln}, nil
}

// serve echoes on every connection of a listener until that is closed.
func serve(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go serveConn(c)
	}
}

// bufSize is the size of a connection's buffer in engines that have one.
const bufSize = 4 << 10

func serveConn(c net.Conn) {
	defer c.Close()
	buf := make([]byte, bufSize)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (s *stdServer) Addr() string                   { return s.ln.Addr().String() }
func (s *stdServer) Backend() (name, reason string) { return "net", "" }
func (s *stdServer) Enters() int64                  { return -1 }
func (s *stdServer) Close() error                   { return s.ln.Close() }
