// SPDX-License-Identifier: MIT

package echo

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
)

// goServer is a server with a goroutine for each connection, on any listener.
type goServer struct {
	ln              net.Listener
	backend, reason string
}

// startGo starts the server that the setup describes.
func startGo(s Setup, ln net.Listener, backend, reason string) *goServer {
	switch {
	case s.Fast:
		go serveFast(ln, s)
	case s.HTTP > 0:
		go serveHTTP(ln, s)
	default:
		go serve(ln, s)
	}
	return &goServer{ln, backend, reason}
}

// startStd starts a server on package net.
func startStd(s Setup) (Server, error) {
	return startOn(s, net.Listen, net.ListenPacket, "net", "")
}

// startOn starts a server on the listener or the datagram socket of a package.
func startOn(s Setup, listen func(network, address string) (net.Listener, error),
	listenPacket func(network, address string) (net.PacketConn, error), backend, reason string,
) (Server, error) {
	if s.Fast && serveFast == nil {
		return nil, ErrNoFastHTTP
	}
	if s.Network == "udp" {
		pc, err := listenPacket(s.at())
		if err != nil {
			return nil, err
		}
		go serveDatagrams(pc, s)
		return &packetServer{pc, backend, reason}, nil
	}
	ln, err := s.listen(listen)
	if err != nil {
		return nil, err
	}
	return startGo(s, ln, backend, reason), nil
}

// packetServer answers datagrams.
type packetServer struct {
	net.PacketConn
	backend, reason string
}

func (s *packetServer) Addr() string                   { return s.LocalAddr().String() }
func (s *packetServer) Backend() (name, reason string) { return s.backend, s.reason }
func (s *packetServer) Enters() int64                  { return -1 }

// udpConn has the calls that do not allocate addresses.
type udpConn interface {
	ReadFromUDPAddrPort(p []byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort(p []byte, to netip.AddrPort) (int, error)
}

func serveDatagrams(pc net.PacketConn, s Setup) {
	c := pc.(udpConn) // both packages have it
	answer := s.answer()
	for buf := make([]byte, 64<<10); ; {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		// A datagram that does not fit into the client's buffer is lost, as on a network.
		if answer == nil {
			_, _ = c.WriteToUDPAddrPort(buf[:n], from)
			continue
		}
		s.stamp(answer, buf[:n])
		for p := range slices.Chunk(answer, s.Give) {
			_, _ = c.WriteToUDPAddrPort(p, from)
		}
	}
}

// serve serves every connection of a listener until the listener is closed.
func serve(ln net.Listener, s Setup) {
	answer := s.answer()
	acceptAll(ln, func(c net.Conn) {
		if answer != nil {
			serveBulk(c, s.Take, answer)
			return
		}
		serveConn(c, &s)
	})
}

// acceptAll calls handle in a goroutine for each connection until the listener is closed.
func acceptAll(ln net.Listener, handle func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go handle(c)
	}
}

// serveBulk answers each message of take bytes.
func serveBulk(c net.Conn, take int, answer []byte) {
	defer c.Close()
	buf := make([]byte, min(take, 64<<10))
	for {
		for left := take; left > 0; {
			n, err := c.Read(buf[:min(left, len(buf))])
			if err != nil {
				return
			}
			left -= n
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// serveConn takes a pointer because a copy could be what makes the stacks of idle connections grow.
func serveConn(c net.Conn, s *Setup) {
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

// startConn starts a server on our net.Listener, used like package net's.
func startConn(s Setup) (Server, error) {
	name, reason := unet.Backend()
	return startOn(s, unet.Listen, unet.ListenPacket, name, reason)
}

// startPlain starts the control: the same design with plain calls instead of the ring.
func startPlain(s Setup) (Server, error) {
	system, err := unet.NewSystem(unet.Options{Mode: unet.ModePlain})
	if err != nil {
		return nil, err
	}
	name, reason := system.Backend()
	return startOn(s, system.Listen, system.ListenPacket, name, reason)
}

// eventServer is our callback server.
type eventServer struct{ *event.Server }

// callbacks returns a handler for the setup.
func callbacks(setup Setup) event.Handler {
	answer := setup.answer()
	if answer == nil {
		return event.Handler{OnData: func(c *event.Conn, p []byte) { _, _ = c.Write(p) }}
	}
	return event.Handler{
		OnOpen: func(c *event.Conn) { c.SetValue(new(int)) },
		OnData: func(c *event.Conn, p []byte) {
			got := c.Value().(*int)
			for *got += len(p); *got >= setup.Take; *got -= setup.Take {
				if len(answer) >= 16<<10 {
					_ = c.WriteFunc(answer, func(error) {})
				} else {
					_, _ = c.Write(answer)
				}
			}
		},
	}
}

// coroutines returns a handler that does the same with functions for a net.Conn.
func coroutines(setup Setup) event.Handler {
	answer := setup.answer()
	return event.Blocking(func(c net.Conn) {
		if answer != nil {
			serveBulk(c, setup.Take, answer)
			return
		}
		serveConn(c, &setup)
	})
}

// startsEvent returns a function that starts an event server with the options.
func startsEvent(o event.Options, handler func(Setup) event.Handler) func(Setup) (Server, error) {
	return func(setup Setup) (Server, error) {
		o := o
		if setup.TLS {
			cert, err := selfSigned()
			if err != nil {
				return nil, err
			}
			o.TLS, setup.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}, false
		}
		network, address := setup.at()
		if network == "udp" {
			setup.Network = ""
		}
		if err := setup.plain(); err != nil {
			return nil, err
		}
		if network == "udp" {
			return startEventPackets(network, address, setup, o)
		}
		s, err := event.Listen(network, address, handler(setup), o)
		if err != nil {
			return nil, err
		}
		return &eventServer{s}, nil
	}
}

// startEventPackets starts a server that answers datagrams.
func startEventPackets(network, address string, setup Setup, o event.Options) (Server, error) {
	s, err := event.New(nil, event.Handler{}, o)
	if err != nil {
		return nil, err
	}
	c, err := s.ListenPacket(network, address, packetCallbacks(setup))
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &eventPackets{eventServer{s}, c}, nil
}

// packetCallbacks returns a handler of datagrams. The loops call it concurrently.
func packetCallbacks(setup Setup) event.PacketHandler {
	if setup.Burst == 0 {
		return event.PacketHandler{OnPacket: func(c *event.PacketConn, from event.Peer, p []byte) { _, _ = c.WriteTo(p, from) }}
	}
	answers := sync.Pool{New: func() any { p := setup.answer(); return &p }}
	return event.PacketHandler{OnPacket: func(c *event.PacketConn, from event.Peer, p []byte) {
		answer := answers.Get().(*[]byte)
		setup.stamp(*answer, p)
		_, _ = c.WriteSegments(*answer, setup.Give, from)
		answers.Put(answer)
	}}
}

// eventPackets answers datagrams.
type eventPackets struct {
	eventServer
	c *event.PacketConn
}

func (s *eventPackets) Addr() string { return s.c.LocalAddr().String() }

func (s *eventServer) Addr() string { return s.Server.Addr().String() }

func (s *eventServer) Enters() int64 {
	if name, _ := s.Backend(); name != "io_uring" {
		return -1
	}
	return int64(s.Stats().Enters)
}

// serveHTTP answers each request with the same body.
func serveHTTP(ln net.Listener, s Setup) {
	body := bytes.Repeat([]byte("x"), s.HTTP)
	length := []string{strconv.Itoa(len(body))}
	srv := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the client notices a failure
		w.Header()["Content-Type"] = textPlain
		w.Header()["Content-Length"] = length
		_, _ = w.Write(body)
	})}
	_ = srv.Serve(ln) // until the listener is closed
}

// ErrNoFastHTTP is the error of a build without fasthttp.
var ErrNoFastHTTP = errors.New("built without fasthttp: needs -tags peers")

// serveFast is serveHTTP with fasthttp, or nil.
var serveFast func(net.Listener, Setup)

// HasFastHTTP reports whether this build has fasthttp.
func HasFastHTTP() bool { return serveFast != nil }

// textPlain saves net/http from detecting the type from the body.
var textPlain = []string{"text/plain"}
