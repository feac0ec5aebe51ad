// SPDX-License-Identifier: MIT

// Package ktls provides TLS connections on which the kernel encrypts what is sent, so that
// files are sent by sendfile(2). Server, Client and NewListener replace crypto/tls's
// functions of the same names.
//
// # Model
//
// crypto/tls performs the handshake and receives, with all its options. After a TLS 1.3
// handshake with AES-GCM the keys for sending are passed to the kernel. Write and ReadFrom
// then pass plaintext to the socket. Alerts, such as the one of Close, are sent through the
// kernel, too.
//
// crypto/tls keeps sending, with the same behaviour, where the kernel has no TLS (CONFIG_TLS, or
// the module tls is not loaded), where another version or cipher was negotiated, and where
// the connection gives no access to its descriptor (syscall.Conn). [Conn.Backend] returns
// which of the two sends, and the reason. With [Config.Require] the handshake fails instead.
//
// # Differences from crypto/tls
//
// A peer may ask for new keys (KeyUpdate). Kernels before Linux 6.14 cannot change keys, and
// this package does not either: reading goes on, but the next Write sends the fatal alert
// internal_error and returns [ErrKeyUpdate]. Clients of crypto/tls never ask.
// A Write that reached its deadline does not end the connection. In the kernel a
// record is 16 KiB long if a call has so much; crypto/tls begins with shorter ones.
//
// The connection below is usually of package unet or of package net; no bytes may be sent
// through it by other means.
package ktls

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// Config configures connections. It may be used by any number of connections and must not be
// copied or changed after its first use.
type Config struct {
	// TLS is the configuration of crypto/tls. Its callbacks and its KeyLogWriter are
	// called as by crypto/tls.
	TLS *tls.Config
	// Require makes the handshake fail with an error that names the reason if the kernel
	// cannot send.
	Require bool

	once  sync.Once
	outer *tls.Config // of servers: TLS with a GetConfigForClient for each connection
}

// ErrKeyUpdate is returned by Write after the peer has asked for new keys. To serve such
// peers use crypto/tls without this package.
var ErrKeyUpdate = errors.New("ktls: the peer asked for new keys (KeyUpdate), which the kernel was not given: use crypto/tls for this peer")

// Backend returns "kernel" if the kernel has TLS, otherwise "crypto/tls" and the reason. The
// kernel is asked once.
func Backend() (name, reason string) { return backend(available()) }

func backend(err error) (name, reason string) {
	if err != nil {
		return "crypto/tls", err.Error()
	}
	return "kernel", ""
}

// available returns nil if the kernel has TLS.
var available = sync.OnceValue(func() error { return noKernelTLS(sys.HasTLS()) })

// noKernelTLS returns the reason for an error of attaching the kernel's TLS.
func noKernelTLS(errno syscall.Errno) error {
	switch errno {
	case 0:
		return nil
	case syscall.ENOENT:
		return errors.New("the kernel has no TLS: it needs CONFIG_TLS, and its module loaded (modprobe tls)")
	case syscall.ENOSYS:
		return errors.New("only Linux has TLS in the kernel")
	}
	return errors.New("attaching the kernel's TLS to the socket: " + errno.Error())
}

// Server returns the server's side of a TLS connection over conn, as tls.Server does. The
// handshake is done by the first Read or Write, or by HandshakeContext.
func Server(conn net.Conn, config *Config) *Conn {
	config.once.Do(func() { config.outer = outerConfig(config.TLS) })
	c := newConn(conn, config)
	c.tls = tls.Server(c.wire, config.outer)
	return c
}

// Client returns the client's side of a TLS connection over conn, as tls.Client does.
func Client(conn net.Conn, config *Config) *Conn {
	c := newConn(conn, config)
	c.wire.keys.client = true
	own := cloneOf(config.TLS)
	c.wire.logKeys(own)
	c.tls = tls.Client(c.wire, own)
	return c
}

// outerConfig returns the configuration that all connections of a server share: crypto/tls
// keeps the keys of session tickets in it. Each connection gets one of its own, to learn its
// keys.
func outerConfig(config *tls.Config) *tls.Config {
	outer := cloneOf(config)
	outer.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		w := hello.Conn.(*wire)
		from := config
		if config.GetConfigForClient != nil {
			chosen, err := config.GetConfigForClient(w.below(hello))
			if err != nil {
				return nil, err
			}
			if chosen != nil {
				from = chosen
			}
		}
		own := cloneOf(from)
		w.logKeys(own)
		if get := from.GetCertificate; get != nil {
			own.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return get(w.below(hello)) }
		}
		return own, nil
	}
	if get := outer.GetEncryptedClientHelloKeys; get != nil {
		outer.GetEncryptedClientHelloKeys = func(hello *tls.ClientHelloInfo) ([]tls.EncryptedClientHelloKey, error) {
			return get(hello.Conn.(*wire).below(hello))
		}
	}
	return outer
}

func cloneOf(config *tls.Config) *tls.Config {
	if config == nil {
		return new(tls.Config)
	}
	return config.Clone()
}

// NewListener returns a listener whose connections are those of ln with TLS, as
// tls.NewListener does. Accept returns a *[Conn] and does not wait for the handshake. A
// server of net/http speaks HTTP/1.1 on them: Config.TLS.NextProtos must not offer "h2".
func NewListener(ln net.Listener, config *Config) net.Listener { return &listener{ln, config} }

type listener struct {
	net.Listener
	config *Config
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Server(c, l.config), nil
}
