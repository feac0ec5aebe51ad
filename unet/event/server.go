// SPDX-License-Identifier: MIT

package event

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/features"
)

// Server accepts connections and calls a [Handler] for them. Its methods may be called
// concurrently, from any goroutine.
type Server struct {
	handler Handler
	opts    Options
	network string       // "" without a listening socket
	given   net.Listener // the listener passed to New
	addr    net.Addr
	name    string
	reason  string
	engine  engine
	threads bool // each loop has its own thread

	background sync.WaitGroup // goroutines of handshakes and of SendFile
	large      atomic.Int32   // lent pieces of largePiece bytes or more that are not finished
	leaving    atomic.Bool    // Shutdown or Close was called
	aborting   atomic.Bool    // everything is to end at once
}

// Listen starts a server on an address of the network "tcp", "tcp4", "tcp6" or "unix",
// like net.Listen. The server runs until [Server.Shutdown] or [Server.Close]. Errors are
// as from net.Listen. While the address is in use, Listen tries again for 200 ms, because the
// kernel frees the sockets of a process that used io_uring some milliseconds after its end. With
// ModeRing they may also be an error of package features, if io_uring is absent or forbidden. On
// Linux ModeAuto uses package net only where epoll fails as well.
func Listen(network, address string, h Handler, o Options) (*Server, error) {
	opts, err := o.filled()
	if err != nil {
		return nil, err
	}
	switch network {
	case "tcp", "tcp4", "tcp6", "unix":
	default:
		return nil, &net.OpError{Op: "listen", Net: network, Err: net.UnknownNetworkError(network)}
	}
	s := &Server{handler: h, opts: opts, network: network}
	if err := s.start(address); err != nil {
		return nil, err
	}
	if opts.Logger != nil {
		opts.Logger.Info("event: backend chosen", "backend", s.name, "reason", s.reason)
	}
	return s, nil
}

// New starts a server on an existing listener of TCP or Unix stream sockets, of package
// net or unet. The listener may have been inherited from another process. If ln is nil,
// the server accepts nothing, and serves the connections of [Server.Dial] and
// [Server.Enroll]. If New succeeds, the socket belongs to the server, and the program must
// no longer use the listener. All loops accept from the one socket. The file of a Unix
// socket stays when the server ends. After an error the listener is unchanged and still
// belongs to the caller.
func New(ln net.Listener, h Handler, o Options) (*Server, error) {
	opts, err := o.filled()
	if err != nil {
		return nil, err
	}
	s := &Server{handler: h, opts: opts, given: ln}
	if ln != nil {
		switch s.network = ln.Addr().Network(); s.network {
		case "tcp", "unix":
		default:
			return nil, &net.OpError{Op: "listen", Net: s.network, Addr: ln.Addr(), Err: net.UnknownNetworkError(s.network)}
		}
	}
	if err := s.start(""); err != nil {
		return nil, err
	}
	if u, ok := ln.(interface{ SetUnlinkOnClose(bool) }); ok { // of package net or unet
		u.SetUnlinkOnClose(false)
	}
	if ln != nil && s.name != ModeNet.String() {
		_ = ln.Close() // The server has its own descriptor.
	}
	return s, nil
}

// ConnOptions configure how a connection of [Server.Enroll] or [Server.Dial] is served.
// With the zero value it is served like an accepted connection.
type ConnOptions struct {
	// Handler, if it is set, replaces the server's handler for this connection.
	Handler *Handler
	// Beside, if it is set, is a connection of the same server whose loop then serves the
	// new connection, too. The callbacks of both never overlap, so they need no locks.
	Beside *Conn
	// Value is returned by [Conn.Value] until [Conn.SetValue] is called.
	Value any
	// TLS, if it is set, puts crypto/tls on the connection, as the client. Enroll and
	// Dial then wait for the handshake and must not be called from a callback. If the
	// configuration names no host, Dial checks the name of the host that it dials.
	TLS *tls.Config
}

// Enroll takes over a TCP connection or a Unix stream connection of package net or unet.
// From then on the server receives and sends. Enroll closes nc, but the connection stays
// open. No other goroutine may use nc during the call. The server calls OnOpen soon. Data
// that was read from nc before is not passed to OnData. A connection of crypto/tls cannot
// be enrolled, because it has no socket. Without TLS Enroll may be called from callbacks.
//
// After an error nc is unchanged and still belongs to the caller, except after an error
// of the TLS handshake. If the server is ending, the error is net.ErrClosed.
func (s *Server) Enroll(nc net.Conn, o ConnOptions) (*Conn, error) {
	return s.enroll(context.Background(), nc, o)
}

// enroll is Enroll. ctx bounds the wait for the TLS handshake.
func (s *Server) enroll(ctx context.Context, nc net.Conn, o ConnOptions) (*Conn, error) {
	addr := nc.LocalAddr()
	if n := addr.Network(); n != "tcp" && n != "unix" {
		return nil, &net.OpError{Op: "enroll", Net: n, Source: addr, Err: net.UnknownNetworkError(n)}
	}
	if o.Beside != nil && o.Beside.server != s {
		return nil, errors.New("event: ConnOptions.Beside is a connection of another server")
	}
	if s.leaving.Load() {
		return nil, &net.OpError{Op: "enroll", Net: addr.Network(), Source: addr, Err: net.ErrClosed}
	}
	c, err := s.engine.enroll(nc, o)
	if err != nil {
		return nil, &net.OpError{Op: "enroll", Net: addr.Network(), Source: addr, Err: err}
	}
	if s.name != ModeNet.String() {
		_ = nc.Close() // The server has its own descriptor.
	}
	if o.TLS == nil {
		return c, nil
	}
	select {
	case err = <-c.handshakeResult():
	case <-ctx.Done():
		c.Abort()
		err = ctx.Err()
	}
	if err != nil {
		return nil, &net.OpError{Op: "enroll", Net: addr.Network(), Source: addr, Err: err}
	}
	return c, nil
}

// Dial connects to an address, like a zero net.Dialer, and enrolls the connection. It
// blocks until the connection is established and the TLS handshake, if there is one, is
// complete. If ctx ends before that, Dial returns an error. Dial must not be called from a
// callback. Except with ModeNet it needs a second descriptor for a moment: it takes the
// socket over from package net by a duplicate.
func (s *Server) Dial(ctx context.Context, network, address string, o ConnOptions) (*Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if o.TLS != nil {
		o.TLS = withServerName(o.TLS, address)
	}
	c, err := s.enroll(ctx, nc, o)
	if err != nil {
		_ = nc.Close() // The server may have closed it.
		return nil, err
	}
	return c, nil
}

// start starts the backend that the mode asks for. With ModeAuto it starts the first one
// that can be used.
func (s *Server) start(address string) error {
	mode, by := s.opts.Mode, "the options"
	if mode == ModeAuto {
		var err error
		if mode, err = features.ParseMode(os.Getenv(features.EnvBackend)); err != nil {
			return fmt.Errorf("event: %w (%s)", err, features.EnvBackend)
		}
		by = features.EnvBackend
	}
	kinds := []Mode{mode}
	switch mode {
	case ModeRing, ModeEpoll, ModeNet:
		s.reason = "chosen by " + by
	default:
		kinds = []Mode{ModeRing, ModeEpoll, ModeNet}
	}
	for i, kind := range kinds {
		s.name = kind.String() // before callbacks may ask
		err := s.startKind(address, kind)
		if err == nil {
			return nil
		}
		if i == len(kinds)-1 || isListenError(err) {
			return err
		}
		if i == 0 {
			s.reason = err.Error()
		}
	}
	return nil
}

// startKind starts the server with one backend.
func (s *Server) startKind(address string, kind Mode) error {
	switch kind {
	case ModeNet:
		return s.startNet(address)
	case ModeRing:
		if err := usable(&s.opts); err != nil {
			return err
		}
		s.threads = s.opts.takesThreads()
	}
	return s.startLoops(address, kind)
}

// isListenError reports whether listening itself failed. Other backends would fail, too.
func isListenError(err error) bool {
	_, ok := err.(*net.OpError)
	return ok
}

// usable returns why io_uring cannot be used for a server, nil if it can.
func usable(o *Options) error {
	probes := []func() error{features.HaveMultishotAccept, features.HaveMultishotRecv, features.HaveBufRing}
	if o.wait == waitThread {
		probes = append(probes, features.HaveDeferTaskrun)
	}
	for _, have := range probes {
		if err := have(); err != nil {
			return err
		}
	}
	return nil
}

// takesThreads reports whether each loop gets its own thread.
func (o *Options) takesThreads() bool {
	if o.wait != waitAuto {
		return o.wait == waitThread
	}
	return runtime.GOMAXPROCS(0) > o.Loops && features.HaveDeferTaskrun() == nil
}

// Backend returns the backend, "io_uring", "epoll" or "net", and the reason: why it is
// not io_uring, or that it was requested.
func (s *Server) Backend() (name, reason string) { return s.name, s.reason }

// Addr returns the address on which the server listens, nil if it has no listening
// socket.
func (s *Server) Addr() net.Addr { return s.addr }

// Stats returns the counters of the server.
func (s *Server) Stats() Stats { return s.engine.stats() }

// Done returns a channel that is closed when a loop has failed. It is also closed when
// all connections and loops have ended after [Server.Shutdown] or [Server.Close].
// [Server.Err] returns an error in the first case. When a loop fails, its connections
// end, with OnClose, and its listening socket is closed. The other loops continue. The
// program should then shut the server down and start another.
func (s *Server) Done() <-chan struct{} { return s.engine.health().ended }

// Err returns the error of the first loop that failed, nil if none has failed.
func (s *Server) Err() error { return s.engine.health().failure() }

// Shutdown stops accepting, after taking the connections that the kernel has already
// accepted, and ends every connection in order. Data that has arrived by now is passed to
// OnData, written bytes are sent, and then OnShutdown is called or its default applies.
// Shutdown returns [Server.Err] when the last connection is closed.
//
// If ctx ends first, the remaining connections are aborted as by [Server.Close], and the
// error is the context's. OnData is not called after that, and Shutdown waits for
// callbacks in progress. Shutdown must not be called from a callback.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leaving.Store(true)
	s.engine.shutdown()
	select {
	case <-s.engine.done():
		return s.Err()
	case <-ctx.Done():
		if err := s.Close(); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		return context.Cause(ctx)
	}
}

// Close stops accepting, drops the pending bytes of all connections, and closes them. It
// waits until the last OnClose has been called and all resources are freed, and returns
// [Server.Err]. It may be called again. It must not be called from a callback.
func (s *Server) Close() error {
	s.leaving.Store(true)
	s.aborting.Store(true)
	s.engine.abort()
	<-s.engine.done()
	return s.Err()
}
