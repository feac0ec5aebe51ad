// SPDX-License-Identifier: MIT

package echo

import (
	"bytes"
	"net"
	"net/http"

	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
)

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

// startConn starts our net.Listener, used as package net's.
func startConn(s Setup) (Server, error) {
	ln, err := unet.Listen("tcp", loopback)
	if err != nil {
		return nil, err
	}
	name, reason := unet.Backend()
	return startGo(s, ln, name, reason), nil
}

// startPlain starts the control: the same design with plain calls in the place of the ring.
func startPlain(s Setup) (Server, error) {
	system, err := unet.NewSystem(unet.Options{Mode: unet.ModePlain})
	if err != nil {
		return nil, err
	}
	ln, err := system.Listen("tcp", loopback)
	if err != nil {
		return nil, err
	}
	name, reason := system.Backend()
	return startGo(s, ln, name, reason), nil
}

// eventServer is our callback server.
type eventServer struct {
	*event.Server
	sqpoll bool
}

// startsEvent returns what starts it with the options.
func startsEvent(o event.Options) func(Setup) (Server, error) {
	return func(setup Setup) (Server, error) {
		if err := setup.plain(); err != nil {
			return nil, err
		}
		s, err := event.Listen("tcp", loopback, event.Handler{OnData: func(c *event.Conn, p []byte) { _, _ = c.Write(p) }}, o)
		if err != nil {
			return nil, err
		}
		return &eventServer{s, o.SQPoll}, nil
	}
}

func (s *eventServer) Addr() string { return s.Server.Addr().String() }

// Enters is not known with SQPOLL, where the server counts submissions, most of which enter nothing.
func (s *eventServer) Enters() int64 {
	if name, _ := s.Backend(); name != "io_uring" || s.sqpoll {
		return -1
	}
	return int64(s.Stats().Enters)
}

// serveHTTP answers each request with the same body.
func serveHTTP(ln net.Listener, s Setup) {
	body := bytes.Repeat([]byte("x"), s.HTTP)
	srv := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = textPlain
		_, _ = w.Write(body)
	})}
	_ = srv.Serve(ln) // until the listener is closed
}

// textPlain spares each answer a guess from its body.
var textPlain = []string{"text/plain"}
