// SPDX-License-Identifier: MIT

package event

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// PacketHandler holds the functions that a server calls for a datagram socket. Each may
// be nil. The calls for one [PacketConn] never overlap. A function that blocks delays its
// loop.
type PacketHandler struct {
	// OnPacket receives a datagram, which may be empty. The slice is valid until the
	// function returns. Datagrams that the function sends by [PacketConn.WriteTo] are
	// sent together with the others of the same turn.
	OnPacket func(c *PacketConn, from Peer, data []byte)
	// OnSegments, if it is set, receives datagrams of one peer that the kernel has joined;
	// see [PacketConn.SetGRO]. data holds datagrams of segment bytes, one after the other.
	// The last may be shorter. The slice is valid until the function returns. Without
	// OnSegments each of these datagrams is passed to OnPacket.
	OnSegments func(c *PacketConn, from Peer, data []byte, segment int)
	// OnError is called if a datagram that WriteTo had accepted was not sent. It is also
	// called if a received datagram is not delivered because it is longer than 64 KiB.
	OnError func(c *PacketConn, peer Peer, err error)
	// OnWritable is called after [PacketConn.WriteTo] has returned [ErrFull], when at
	// most half of [Options].WriteLimit is pending.
	OnWritable func(c *PacketConn)
	// OnClose is the last call. The error is nil after [PacketConn.Close] and at the end
	// of the server. Otherwise it is the error of the socket.
	OnClose func(c *PacketConn, err error)
	// OnPanic, if it is set, is called with the panic's value when a function of the
	// handler panics. The socket stays open. Without OnPanic a panic ends the process.
	// runtime.Goexit in a function of the handler ends only that call.
	OnPanic func(c *PacketConn, value any)
}

// Peer is the sender or the destination of a datagram. It is comparable.
type Peer struct {
	Addr netip.AddrPort // address of a UDP socket
	Name string         // name of a Unix socket, "" for a sender without a name
}

// String returns the address or the name.
func (p Peer) String() string {
	if p.Addr.IsValid() {
		return p.Addr.String()
	}
	return p.Name
}

// PacketConn is a UDP or Unix datagram socket of a server. Its methods may be called
// concurrently, from any goroutine and from callbacks.
type PacketConn struct {
	server  *Server
	handler PacketHandler
	network string
	local   net.Addr
	sock    packetSocket
	all     []*PacketConn // of one address
}

// packetSocket is the backend's part of a PacketConn.
type packetSocket interface {
	// writeTo sends or accepts datagrams of segment bytes, and returns the number of bytes
	// sent or accepted. 0 means that p is one datagram.
	writeTo(p []byte, segment int, to Peer) (int, error)
	setGRO(on bool) error
	setPaused(paused bool)
	pending() int
	close()
}

// maxPacket is the length of the longest datagram. maxSockaddr is the length of an
// address in the kernel's form.
const maxPacket, maxSockaddr = 1<<16 - 1, 128

// ListenPacket makes the server receive datagrams on an address of the network "udp",
// "udp4", "udp6" or "unixgram", like net.ListenPacket. For UDP each loop has a separate
// socket (SO_REUSEPORT). The kernel delivers all datagrams of one peer to the same
// socket. Functions of the handler get the PacketConn of their loop; ListenPacket returns
// the first of these PacketConns. The server needs no listener for connections; see
// [New].
//
// [PacketConn.Close] closes the sockets, and so does the end of the server.
// [Server.Shutdown] delivers the datagrams that have arrived, sends pending ones, and
// closes the sockets. The file of a Unix socket stays, as with package net. There are no
// deadlines, because no method blocks.
func (s *Server) ListenPacket(network, address string, h PacketHandler) (*PacketConn, error) {
	lc := net.ListenConfig{}
	if s.opts.ListenConfig != nil {
		lc = *s.opts.ListenConfig
	}
	count := 1
	switch network {
	case "udp", "udp4", "udp6":
		count = s.engine.shareAddress(&lc)
	case "unixgram":
	default:
		return nil, &net.OpError{Op: "listen", Net: network, Err: net.UnknownNetworkError(network)}
	}
	var sockets []net.PacketConn
	for range count {
		var pc net.PacketConn
		err := bind(func() (err error) {
			pc, err = lc.ListenPacket(context.Background(), network, address)
			return err
		})
		if err != nil {
			closePackets(sockets)
			return nil, err
		}
		sockets = append(sockets, pc)
		address = pc.LocalAddr().String() // the port that was chosen
	}
	c, err := s.packets(network, sockets, h)
	if err != nil {
		closePackets(sockets)
		return nil, &net.OpError{Op: "listen", Net: network, Addr: sockets[0].LocalAddr(), Err: err}
	}
	return c, nil
}

// EnrollPacket takes over an existing datagram socket of package net or unet, which may
// have been inherited from another process. It must not be connected. If EnrollPacket
// succeeds, pc belongs to the server, and the program must no longer use it. After an
// error pc is unchanged and still belongs to the caller.
func (s *Server) EnrollPacket(pc net.PacketConn, h PacketHandler) (*PacketConn, error) {
	addr := pc.LocalAddr()
	network := addr.Network()
	fail := func(err error) (*PacketConn, error) {
		return nil, &net.OpError{Op: "enroll", Net: network, Source: addr, Err: err}
	}
	if network != "udp" && network != "unixgram" {
		return fail(net.UnknownNetworkError(network))
	}
	if r, ok := pc.(interface{ RemoteAddr() net.Addr }); ok && !absent(r.RemoteAddr()) {
		return fail(fmt.Errorf("the socket is connected to %v: open it by ListenPacket", r.RemoteAddr()))
	}
	c, err := s.packets(network, []net.PacketConn{pc}, h)
	if err != nil {
		return fail(err)
	}
	return c, nil
}

// absent reports whether an address is nil or a nil pointer, which package net returns.
func absent(a net.Addr) bool {
	switch a := a.(type) {
	case nil:
		return true
	case *net.UDPAddr:
		return a == nil
	case *net.UnixAddr:
		return a == nil
	}
	return false
}

func closePackets(sockets []net.PacketConn) {
	for _, pc := range sockets {
		_ = pc.Close()
	}
}

// packets makes the engine serve the sockets of one address.
func (s *Server) packets(network string, sockets []net.PacketConn, h PacketHandler) (*PacketConn, error) {
	if s.leaving.Load() {
		return nil, net.ErrClosed
	}
	all := make([]*PacketConn, len(sockets))
	for i, pc := range sockets {
		all[i] = &PacketConn{server: s, handler: h, network: network, local: pc.LocalAddr(), all: all}
	}
	if err := s.engine.servePackets(all, sockets); err != nil {
		return nil, err
	}
	return all[0], nil
}

// WriteTo sends a datagram, or accepts it for sending. It copies p and does not block. In
// a callback it only accepts the datagram, and later errors go to OnError. Success does
// not mean that the peer has received the datagram. If the kernel has no room and
// [Options].WriteLimit bytes are pending, the error is [ErrFull], and the datagram is not
// accepted. If the receiver of a Unix socket has no room, the error is EAGAIN. After
// Close the error is net.ErrClosed, in a *net.OpError.
func (c *PacketConn) WriteTo(p []byte, to Peer) (int, error) { return c.WriteSegments(p, 0, to) }

// WriteSegments sends several datagrams, or accepts them for sending, like
// [PacketConn.WriteTo]. p holds the datagrams one after the other. Each has segment bytes;
// the last may be shorter. If segment is not between 1 and len(p)-1, p is one datagram.
// Up to 64 datagrams are passed to the kernel in one call (UDP_SEGMENT, Linux 4.18), which
// costs much less than a call for each. Where the kernel refuses that, and with ModeNet,
// the datagrams are sent one by one. On a Unix socket several datagrams are an error.
// WriteSegments returns the size in bytes of the datagrams that it has sent or accepted,
// also with an error.
func (c *PacketConn) WriteSegments(p []byte, segment int, to Peer) (int, error) {
	if segment < 0 || segment >= len(p) {
		segment = 0
	}
	var n int
	err := errNoSegments
	if segment == 0 || c.network != "unixgram" {
		n, err = c.sock.writeTo(p, segment, to)
	}
	if err != nil {
		return n, c.writeError(to, err)
	}
	return n, nil
}

var errNoSegments = errors.New("event: segments need a UDP socket: call WriteTo for each datagram")

// SetGRO sets whether the kernel may join datagrams of one peer that have the same size
// (UDP_GRO, Linux 5.0), up to 64 of them. It is off by default. Joined datagrams cost much
// less to receive. OnSegments receives them together; without OnSegments the server passes
// each datagram to OnPacket. SetGRO applies to the sockets of all loops for the same
// address. It has no effect with ModeNet. For a Unix socket it returns an error.
func (c *PacketConn) SetGRO(on bool) error {
	for _, one := range c.all {
		err := errNoSegments
		if c.network != "unixgram" {
			err = one.sock.setGRO(on)
		}
		if err != nil {
			return &net.OpError{Op: "set", Net: c.network, Addr: c.local, Err: err}
		}
	}
	return nil
}

// PauseRead stops calls of OnPacket and OnSegments until [PacketConn.ResumeRead], for the
// sockets of all loops for the same address. Datagrams wait in the socket's receive buffer.
// When it is full, UDP datagrams are lost, and the senders of Unix datagrams wait. Calls
// that have begun in other goroutines continue. [Server.Shutdown] ends the pause.
func (c *PacketConn) PauseRead() { c.setPaused(true) }

// ResumeRead undoes [PacketConn.PauseRead].
func (c *PacketConn) ResumeRead() { c.setPaused(false) }

func (c *PacketConn) setPaused(paused bool) {
	for _, one := range c.all {
		one.sock.setPaused(paused)
	}
}

// segments returns how many datagrams of segment bytes n bytes are. 0 means that they are
// one datagram.
func segments(n, segment int) int {
	if segment == 0 {
		return 1
	}
	return (n + segment - 1) / segment
}

// writeError returns an error of WriteTo.
func (c *PacketConn) writeError(to Peer, err error) error {
	var oe *net.OpError
	if errors.Is(err, ErrFull) || errors.As(err, &oe) {
		return err
	}
	return &net.OpError{Op: "write", Net: c.network, Source: c.local, Addr: to.netAddr(), Err: err}
}

// Pending returns how many bytes WriteTo has accepted and the kernel has not taken yet.
func (c *PacketConn) Pending() int { return c.sock.pending() }

// Close sends the pending datagrams and then closes the socket, and the sockets of the
// other loops for the same address. It does not wait for that: OnClose is called later,
// once for each socket. A second call does nothing.
func (c *PacketConn) Close() error {
	for _, one := range c.all {
		one.sock.close()
	}
	return nil
}

// LocalAddr returns the address of the socket.
func (c *PacketConn) LocalAddr() net.Addr { return c.local }

// Server returns the server that serves the socket.
func (c *PacketConn) Server() *Server { return c.server }

// netAddr returns the address of a peer as a net.Addr, nil for none.
func (p Peer) netAddr() net.Addr {
	switch {
	case p.Addr.IsValid():
		return net.UDPAddrFromAddrPort(p.Addr)
	case p.Name != "":
		return &net.UnixAddr{Name: p.Name, Net: "unixgram"}
	}
	return nil
}

// peerOf returns the peer of a net.Addr.
func peerOf(a net.Addr) Peer {
	switch a := a.(type) {
	case *net.UDPAddr:
		if a != nil {
			return Peer{Addr: a.AddrPort()}
		}
	case *net.UnixAddr:
		if a != nil {
			return Peer{Name: a.Name}
		}
	}
	return Peer{}
}

// errNoPeer is the error of a datagram without a destination.
var errNoPeer = errors.New("event: the peer has no address")

// errPacketTooLong is the error of a datagram that was received in part.
var errPacketTooLong = errors.New("event: a datagram of more than 64 KiB was dropped")

// call calls a function of the handler. exited is called if that ends its goroutine.
func (c *PacketConn) call(exited func(), f func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value, handle := recover(), c.handler.OnPanic
		switch {
		case value == nil:
			exited()
		case handle == nil:
			panic(value) // on the same stack, so that the report shows it
		default:
			handle(c, value)
		}
	}()
	f()
	returned = true
}

// netSocket is a PacketConn on package net. A goroutine receives.
type netSocket struct {
	c  *PacketConn
	g  *goroutines
	pc net.PacketConn

	mu      sync.Mutex
	paused  bool
	closed  bool      // by close
	changed sync.Cond // of the fields above and g.leaving
}

// shareAddress implements engine.
func (*goroutines) shareAddress(*net.ListenConfig) int { return 1 }

// servePackets implements engine.
func (g *goroutines) servePackets(all []*PacketConn, sockets []net.PacketConn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaving.Load() {
		return net.ErrClosed
	}
	for i, c := range all {
		s := &netSocket{c: c, g: g, pc: sockets[i]}
		s.changed.L = &s.mu
		c.sock = s
		g.packets = append(g.packets, s)
		g.wg.Go(func() { s.serve(make([]byte, maxPacket+1), mostEmptyReads) })
	}
	return nil
}

// serve receives until the socket is closed or, in a shutdown, has nothing more.
func (s *netSocket) serve(buf []byte, left int) {
	// When a callback ends the goroutine, another one continues.
	again := func() { s.g.wg.Go(func() { s.serve(buf, left) }) }
	most := maxDrain // bounds the bytes of a shutdown
	for {
		if s.g.leaving.Load() {
			_ = s.pc.SetReadDeadline(time.Now().Add(drainTime))
		}
		n, from, err := s.pc.ReadFrom(buf)
		switch {
		case s.g.server.aborting.Load(), errors.Is(err, net.ErrClosed):
			s.end(nil)
			return
		case errors.Is(err, errTimeout):
			if left--; left == 0 {
				s.end(nil)
				return
			}
			continue
		case err != nil:
			s.end(err)
			return
		}
		if !s.awaitResume() {
			s.end(nil)
			return
		}
		peer := peerOf(from)
		if n > maxPacket {
			s.failed(again, peer, errPacketTooLong)
			continue
		}
		s.g.count.packetsReceived.Add(1)
		if f := s.c.handler.OnPacket; f != nil {
			s.c.call(again, func() { f(s.c, peer, buf[:n]) })
		}
		if most -= n + 1; s.g.leaving.Load() && most < 0 {
			s.end(nil)
			return
		}
	}
}

// awaitResume waits while reading is paused, and returns false if the socket was closed.
func (s *netSocket) awaitResume() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.paused && !s.closed && !s.g.leaving.Load() {
		s.changed.Wait()
	}
	return !s.closed
}

func (s *netSocket) failed(exited func(), peer Peer, err error) {
	if f := s.c.handler.OnError; f != nil {
		s.c.call(exited, func() { f(s.c, peer, err) })
	}
}

// end closes the socket.
func (s *netSocket) end(err error) {
	_ = s.pc.Close()
	s.g.mu.Lock()
	s.g.packets = slices.DeleteFunc(s.g.packets, func(o *netSocket) bool { return o == s })
	s.g.mu.Unlock()
	if f := s.c.handler.OnClose; f != nil {
		s.c.call(func() {}, func() { f(s.c, err) })
	}
}

// writeTo implements packetSocket. Package net waits for room.
func (s *netSocket) writeTo(p []byte, segment int, to Peer) (n int, err error) {
	addr := to.netAddr()
	if addr == nil {
		return 0, errNoPeer
	}
	if segment == 0 {
		segment = len(p)
	}
	for more := true; more; more = n < len(p) {
		one := p[n:min(n+segment, len(p))]
		if _, err := s.pc.WriteTo(one, addr); err != nil {
			return n, err
		}
		n += len(one)
		s.g.count.packetsSent.Add(1)
	}
	return n, nil
}

func (s *netSocket) setGRO(bool) error { return nil }

func (s *netSocket) setPaused(paused bool) {
	s.mu.Lock()
	s.paused = paused
	s.mu.Unlock()
	s.changed.Broadcast()
}

func (s *netSocket) pending() int { return 0 }

func (s *netSocket) close() {
	_ = s.pc.Close()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.changed.Broadcast()
}

// leave ends the pause of a shutdown, and the wait for a datagram.
func (s *netSocket) leave() {
	_ = s.pc.SetReadDeadline(past)
	s.setPaused(false)
}
