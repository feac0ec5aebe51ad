// SPDX-License-Identifier: MIT

package unet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Dialer has the fields and methods of net.Dialer. Package net resolves names, tries the
// addresses and applies timeouts. The zero value works like the zero net.Dialer, on the
// default system. A Dialer may be used concurrently.
type Dialer struct {
	// These fields are net.Dialer's.

	Timeout         time.Duration
	Deadline        time.Time
	LocalAddr       net.Addr
	DualStack       bool // Deprecated: it has no effect, as in package net.
	FallbackDelay   time.Duration
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig
	Resolver        *net.Resolver
	Cancel          <-chan struct{} // Deprecated: use DialContext.
	Control         func(network, address string, c syscall.RawConn) error
	ControlContext  func(ctx context.Context, network, address string, c syscall.RawConn) error

	// System drives the connections; nil means the default system.
	System *System
	// UserTimeout limits how long data that was sent over TCP may stay unacknowledged
	// before the kernel ends the connection (TCP_USER_TIMEOUT, rounded up to
	// milliseconds). 0 means the kernel's limit. It has an effect on Linux only, and turns
	// MPTCP off, for which Linux does not support it. gRPC sets this option by itself, but
	// only on connections of package net.
	UserTimeout time.Duration

	multipath multipath
}

// multipath is the choice of SetMultipathTCP. Without a call, package net's default
// applies.
type multipath struct{ chosen, use bool }

// std returns the net.Dialer with the same settings. Nothing points to d afterwards.
func (d *Dialer) std() net.Dialer {
	n := net.Dialer{Timeout: d.Timeout, Deadline: d.Deadline, LocalAddr: d.LocalAddr,
		FallbackDelay: d.FallbackDelay, KeepAlive: d.KeepAlive, KeepAliveConfig: d.KeepAliveConfig,
		Resolver: d.Resolver, Control: d.Control, ControlContext: d.ControlContext}
	//lint:ignore SA1019 a program may still set the deprecated fields
	n.DualStack, n.Cancel = d.DualStack, d.Cancel
	if d.multipath.chosen {
		n.SetMultipathTCP(d.multipath.use)
	}
	if d.UserTimeout > 0 {
		own := *d
		n.ControlContext = own.controlUserTimeout
		n.SetMultipathTCP(false) // Linux refuses the option for MPTCP
	}
	return n
}

// controlUserTimeout sets TCP_USER_TIMEOUT and then calls ControlContext or Control,
// as package net chooses between them.
func (d *Dialer) controlUserTimeout(ctx context.Context, network, address string, c syscall.RawConn) error {
	if err := setUserTimeout(network, c, d.UserTimeout); err != nil {
		return err
	}
	switch {
	case d.ControlContext != nil:
		return d.ControlContext(ctx, network, address, c)
	case d.Control != nil:
		return d.Control(network, address, c)
	}
	return nil
}

// setUserTimeout sets TCP_USER_TIMEOUT on a TCP socket.
func setUserTimeout(network string, c syscall.RawConn, d time.Duration) error {
	switch network {
	case "tcp", "tcp4", "tcp6":
		return control(c, func(fd int) error { return userTimeout(fd, d) })
	}
	return nil
}

// control calls f with the descriptor of c.
func control(c syscall.RawConn, f func(fd int) error) error {
	var errF error
	err := c.Control(func(fd uintptr) { errF = f(int(fd)) })
	return errors.Join(err, errF)
}

// MultipathTCP reports whether MPTCP will be used; see net.Dialer.MultipathTCP.
func (d *Dialer) MultipathTCP() bool {
	n := d.std()
	return n.MultipathTCP()
}

// SetMultipathTCP sets whether to use MPTCP; see net.Dialer.SetMultipathTCP.
func (d *Dialer) SetMultipathTCP(use bool) { d.multipath = multipath{true, use} }

// Dial connects to an address; see [Dialer.DialContext].
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to an address, like net.Dialer.DialContext. It returns a [TCPConn]
// for tcp, tcp4 and tcp6, a [UnixConn] for unix and unixpacket, a [UDPConn] for udp, udp4
// and udp6, and a [UnixgramConn] for unixgram. For other networks, and if the system uses
// package net, it returns a connection of package net.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	n := d.std()
	c, err := n.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return attach[net.Conn](d.System, "dial", c, network, listenOptions{})
}

// DialTCP is DialContext for tcp, tcp4 and tcp6, like net.Dialer.DialTCP. It fails if the
// system uses package net.
func (d *Dialer) DialTCP(ctx context.Context, network string, laddr, raddr netip.AddrPort) (*TCPConn, error) {
	n := d.std()
	c, err := n.DialTCP(ctx, network, laddr, raddr)
	return attachAs[*TCPConn](d.System, "dial", c, err, network)
}

// DialUDP is DialContext for udp, udp4 and udp6, like net.Dialer.DialUDP. It fails if the
// system uses package net.
func (d *Dialer) DialUDP(ctx context.Context, network string, laddr, raddr netip.AddrPort) (*UDPConn, error) {
	n := d.std()
	c, err := n.DialUDP(ctx, network, laddr, raddr)
	return attachAs[*UDPConn](d.System, "dial", c, err, network)
}

// DialIP is net.Dialer.DialIP. The connection is one of package net and has no driver.
func (d *Dialer) DialIP(ctx context.Context, network string, laddr, raddr netip.Addr) (*net.IPConn, error) {
	n := d.std()
	return n.DialIP(ctx, network, laddr, raddr)
}

// DialUnix is DialContext for unix and unixpacket, like net.Dialer.DialUnix. It fails for
// unixgram, for which Dial returns a [UnixgramConn], and if the system uses package net.
func (d *Dialer) DialUnix(ctx context.Context, network string, laddr, raddr *net.UnixAddr) (*UnixConn, error) {
	n := d.std()
	c, err := n.DialUnix(ctx, network, laddr, raddr)
	return attachAs[*UnixConn](d.System, "dial", c, err, network)
}

// Dial connects to an address, like net.Dial.
func Dial(network, address string) (net.Conn, error) {
	var d Dialer
	return d.Dial(network, address)
}

// DialTimeout is Dial with a timeout, like net.DialTimeout.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	d := Dialer{Timeout: timeout}
	return d.Dial(network, address)
}

// Dial connects to an address; the system drives the connection.
func (s *System) Dial(network, address string) (net.Conn, error) {
	d := Dialer{System: s}
	return d.Dial(network, address)
}

// DialTCP connects to an address of tcp, tcp4 or tcp6, like net.DialTCP.
func DialTCP(network string, laddr, raddr *net.TCPAddr) (*TCPConn, error) {
	c, err := net.DialTCP(network, laddr, raddr)
	return attachAs[*TCPConn](nil, "dial", c, err, network)
}

// DialUDP connects to an address of udp, udp4 or udp6, like net.DialUDP.
func DialUDP(network string, laddr, raddr *net.UDPAddr) (*UDPConn, error) {
	c, err := net.DialUDP(network, laddr, raddr)
	return attachAs[*UDPConn](nil, "dial", c, err, network)
}

// DialUnix connects to an address of unix or unixpacket, like net.DialUnix. It fails for
// unixgram, for which [Dial] returns a [UnixgramConn].
func DialUnix(network string, laddr, raddr *net.UnixAddr) (*UnixConn, error) {
	c, err := net.DialUnix(network, laddr, raddr)
	return attachAs[*UnixConn](nil, "dial", c, err, network)
}

// ListenConfig has the fields and methods of net.ListenConfig, and the additional fields
// System and UserTimeout. The function Listen uses the zero value. A ListenConfig may be
// used concurrently.
type ListenConfig struct {
	// These fields are net.ListenConfig's.

	Control         func(network, address string, c syscall.RawConn) error
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	// System drives the sockets; nil means the default system.
	System *System
	// UserTimeout is the same as in [Dialer], for accepted connections.
	UserTimeout time.Duration

	multipath multipath
}

// std returns the net.ListenConfig with the same settings.
func (lc *ListenConfig) std() *net.ListenConfig {
	n := &net.ListenConfig{Control: lc.Control, KeepAlive: lc.KeepAlive, KeepAliveConfig: lc.KeepAliveConfig}
	if lc.multipath.chosen {
		n.SetMultipathTCP(lc.multipath.use)
	}
	if lc.UserTimeout > 0 {
		n.Control = lc.controlUserTimeout
		n.SetMultipathTCP(false) // as in Dialer
	}
	return n
}

// controlUserTimeout sets TCP_USER_TIMEOUT, which accepted connections inherit, and then
// calls Control.
func (lc *ListenConfig) controlUserTimeout(network, address string, c syscall.RawConn) error {
	err := setUserTimeout(network, c, lc.UserTimeout)
	if err != nil || lc.Control == nil {
		return err
	}
	return lc.Control(network, address, c)
}

// MultipathTCP reports whether MPTCP will be used; see net.ListenConfig.MultipathTCP.
func (lc *ListenConfig) MultipathTCP() bool { return lc.std().MultipathTCP() }

// SetMultipathTCP sets whether to use MPTCP; see net.ListenConfig.SetMultipathTCP.
func (lc *ListenConfig) SetMultipathTCP(use bool) { lc.multipath = multipath{true, use} }

// Listen listens on an address of tcp, tcp4, tcp6, unix or unixpacket, like
// net.ListenConfig.Listen. It returns a [TCPListener] or a [UnixListener], or a listener
// of package net if the system uses that.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := lc.std().Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return attach[net.Listener](lc.System, "listen", l, network, listenOptions{lc.KeepAlive, lc.KeepAliveConfig, true})
}

// Listen listens on an address of tcp, tcp4, tcp6, unix or unixpacket, like net.Listen.
func Listen(network, address string) (net.Listener, error) {
	var lc ListenConfig
	return lc.Listen(context.Background(), network, address)
}

// Listen listens on an address; the system drives the listener and its connections.
func (s *System) Listen(network, address string) (net.Listener, error) {
	lc := ListenConfig{System: s}
	return lc.Listen(context.Background(), network, address)
}

// ListenPacket opens a socket for udp, udp4, udp6 or unixgram, like
// net.ListenConfig.ListenPacket. It returns a [UDPConn] or a [UnixgramConn], both of
// which are a [BatchConn]. For other networks, and if the system uses package net, it
// returns a socket of package net (see [NewBatchConn]).
func (lc *ListenConfig) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	c, err := lc.std().ListenPacket(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return attach[net.PacketConn](lc.System, "listen", c, network, listenOptions{})
}

// ListenPacket opens a datagram socket, like net.ListenPacket.
func ListenPacket(network, address string) (net.PacketConn, error) {
	var lc ListenConfig
	return lc.ListenPacket(context.Background(), network, address)
}

// ListenPacket opens a datagram socket; see the function [ListenPacket].
func (s *System) ListenPacket(network, address string) (net.PacketConn, error) {
	lc := ListenConfig{System: s}
	return lc.ListenPacket(context.Background(), network, address)
}

// ListenTCP listens on an address of tcp, tcp4 or tcp6, like net.ListenTCP.
func ListenTCP(network string, laddr *net.TCPAddr) (*TCPListener, error) {
	l, err := net.ListenTCP(network, laddr)
	return attachAs[*TCPListener](nil, "listen", l, err, network)
}

// ListenUnix listens on an address of unix or unixpacket, like net.ListenUnix.
func ListenUnix(network string, laddr *net.UnixAddr) (*UnixListener, error) {
	l, err := net.ListenUnix(network, laddr)
	return attachAs[*UnixListener](nil, "listen", l, err, network)
}

// ListenUDP opens a socket for udp, udp4 or udp6, like net.ListenUDP.
func ListenUDP(network string, laddr *net.UDPAddr) (*UDPConn, error) {
	c, err := net.ListenUDP(network, laddr)
	return attachAs[*UDPConn](nil, "listen", c, err, network)
}

// ListenMulticastUDP opens a socket that receives datagrams sent to a group, like
// net.ListenMulticastUDP. ifi is the network interface; with nil the kernel chooses it.
func ListenMulticastUDP(network string, ifi *net.Interface, gaddr *net.UDPAddr) (*UDPConn, error) {
	c, err := net.ListenMulticastUDP(network, ifi, gaddr)
	return attachAs[*UDPConn](nil, "listen", c, err, network)
}

// ListenUnixgram opens a socket for unixgram, like net.ListenUnixgram.
func ListenUnixgram(network string, laddr *net.UnixAddr) (*UnixgramConn, error) {
	c, err := net.ListenUnixgram(network, laddr)
	return attachAs[*UnixgramConn](nil, "listen", c, err, network)
}

// FileConn returns a connection that uses a duplicate of the descriptor of f, like
// net.FileConn. It returns the same types as [Dial]. f stays open. Like package net, it
// makes the socket non-blocking and sets the options of a new connection.
func FileConn(f *os.File) (net.Conn, error) { return defaultSystem().FileConn(f) }

// FileConn is the function [FileConn] on this system, which drives the connection.
func (s *System) FileConn(f *os.File) (net.Conn, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return attach[net.Conn](s, "file", c, networkOf(c), listenOptions{})
}

// FileListener returns a listener that uses a duplicate of the descriptor of f, like
// net.FileListener. It returns the same types as [Listen]. f stays open. Close does not
// remove the file of a Unix socket, unless SetUnlinkOnClose(true) was called.
func FileListener(f *os.File) (net.Listener, error) { return defaultSystem().FileListener(f) }

// FileListener is the function [FileListener] on this system, which drives the listener.
func (s *System) FileListener(f *os.File) (net.Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return attach[net.Listener](s, "file", l, l.Addr().Network(), listenOptions{})
}

// FilePacketConn returns a datagram socket that uses a duplicate of the descriptor of f,
// like net.FilePacketConn. It returns the same types as [ListenPacket]. f stays open.
func FilePacketConn(f *os.File) (net.PacketConn, error) { return defaultSystem().FilePacketConn(f) }

// FilePacketConn is the function [FilePacketConn] on this system.
func (s *System) FilePacketConn(f *os.File) (net.PacketConn, error) {
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	return attach[net.PacketConn](s, "file", c, networkOf(c.(net.Conn)), listenOptions{})
}

// networkOf returns the network of a connection that a file has become, "" if it
// has no address.
func networkOf(c net.Conn) string {
	for _, a := range []net.Addr{c.LocalAddr(), c.RemoteAddr()} {
		if a != nil {
			return a.Network()
		}
	}
	return ""
}

// listenOptions are the settings of a listener that its descriptor does not have.
type listenOptions struct {
	period time.Duration
	probes net.KeepAliveConfig
	unlink bool // Close removes the file of a Unix socket
}

// attachAs is attach for the result of a function of package net that returns a
// concrete type.
func attachAs[T any](s *System, op string, old io.Closer, err error, network string) (c T, _ error) {
	if err != nil {
		return c, err
	}
	return attach[T](s, op, old, network, listenOptions{unlink: true})
}

// attach moves a socket of package net to a system (nil means the default system)
// and returns it as T. A socket that the system does not drive remains a socket of
// package net if that is a T: a socket of another kind, one that could not be moved in
// ModeAuto, for example for lack of descriptors, and every one in ModeNet. Otherwise
// attach closes it and returns an error.
func attach[T any](s *System, op string, old io.Closer, network string, o listenOptions) (T, error) {
	s = s.or()
	c, err := old, error(errAskedForNet)
	if s.mode != ModeNet {
		c, err = s.drive(old, network, o)
	}
	if err == nil || s.opts.Mode == ModeAuto || s.mode == ModeNet {
		if t, ok := c.(T); ok {
			return t, nil
		}
	}
	if err == nil {
		err = errOtherType
	}
	failed := attachError(op, network, c, err)
	_ = c.Close() // the first error is returned
	var none T
	return none, failed
}

var errOtherType = errors.New("this network has another type of connection: use Dial or ListenPacket")

// attachError describes the failure of attach like package net.
func attachError(op, network string, c io.Closer, err error) error {
	e := &net.OpError{Op: op, Net: network, Err: err}
	switch c := c.(type) {
	case net.Listener:
		e.Addr = c.Addr()
	case net.Conn:
		if e.Source, e.Addr = c.LocalAddr(), c.RemoteAddr(); op != "dial" {
			e.Source, e.Addr = nil, c.LocalAddr()
		}
	}
	return e
}
