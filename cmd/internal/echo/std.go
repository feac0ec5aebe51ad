// SPDX-License-Identifier: MIT

package echo

import "net"

// goServer is a server with a goroutine for each connection, on whatever listener.
type goServer struct {
	ln              net.Listener
	backend, reason string
}

// startGo starts a server on a listener that serves as the setup says.
func startGo(s Setup, ln net.Listener, backend, reason string) *goServer {
	switch {
	case s.Files != "":
		go serveFiles(ln, s)
	case s.HTTP > 0:
		go serveHTTP(ln, s)
	default:
		go serve(ln, s)
	}
	return &goServer{ln, backend, reason}
}

// startStd starts package net.
func startStd(s Setup) (Server, error) {
	ln, err := net.Listen("tcp", loopback)
	if err != nil {
		return nil, err
	}
	return startGo(s, ln, "net", ""), nil
}

// serve echoes on every connection of a listener until that is closed.
func serve(ln net.Listener, s Setup) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go serveConn(c, s)
	}
}

func serveConn(c net.Conn, s Setup) {
	defer c.Close()
	buf := s.buffer()
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		s.Work.do()
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (s *goServer) Addr() string                   { return s.ln.Addr().String() }
func (s *goServer) Backend() (name, reason string) { return s.backend, s.reason }
func (s *goServer) Enters() int64                  { return -1 }
func (s *goServer) Close() error                   { return s.ln.Close() }
