// SPDX-License-Identifier: MIT

package event

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestAddressesAfterReset asks for the addresses of connections that the peer has reset before
// they were accepted, in each callback and after the last one.
// Promise: unet/event/addresses-after-reset
func TestAddressesAfterReset(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		if o.Loops > 1 {
			t.Skip("the test holds one loop")
		}
		o.Loops = 1
		for _, asks := range []string{"OnOpen", "OnClose", "after", "Blocking", "Blocking, after"} {
			t.Run(asks, func(t *testing.T) { testAddressesAfterReset(t, asks, o) })
		}
	})
}

func testAddressesAfterReset(t *testing.T, asks string, o Options) {
	hold, holding, ends := make(chan struct{}), make(chan struct{}), make(chan [2]string, 1)
	ask := func(c interface {
		LocalAddr() net.Addr
		RemoteAddr() net.Addr
	}) {
		ends <- [2]string{c.LocalAddr().String(), c.RemoteAddr().String()}
	}
	wait := func(c *Conn) { close(holding); <-hold }
	h := Handler{OnClose: func(c *Conn, _ error) {
		switch asks {
		case "OnClose":
			ask(c)
		case "after":
			go func() {
				await(t, "it is closed", c.isClosed)
				for c.Server().Stats().Open > 1 {
					runtime.Gosched()
				}
				ask(c)
			}()
		}
	}}
	switch asks {
	case "OnOpen":
		h.OnOpen = func(c *Conn) { ask(c) }
	case "Blocking":
		h = Blocking(func(c net.Conn) { ask(c) })
	case "Blocking, after":
		h = Blocking(func(c net.Conn) {
			_, _ = io.Copy(io.Discard, c)
			go ask(c)
		})
	}
	s := start(t, h, o)
	dialled, err := s.Dial(t.Context(), "tcp", startEcho(t), ConnOptions{Handler: &Handler{OnOpen: wait}})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, "call of OnOpen", holding)
	c := dial(t, s)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	want := [2]string{c.RemoteAddr().String(), c.LocalAddr().String()}
	if asks == "after" && o.Mode != ModeNet {
		want = [2]string{":0", ":0"}
	}
	endBy(c, aborts)
	close(hold)
	if got := receive(t, "addresses", ends); got != want {
		t.Errorf("the addresses are %v, want %v", got, want)
	}
	dialled.Abort()
}

// startEcho starts an echo server of package net and returns its address.
func startEcho(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return ln.Addr().String()
}

// TestTLSFunctionsThatPanic lets the functions of a tls.Config panic, or call runtime.Goexit, or
// ask a connection that was reset for its addresses. The process must live, and serve another
// client. KeyLogWriter is not among them: crypto/tls calls it with a lock of the process, which a
// panic leaves locked.
// Promise: unet/event/tls-functions-panic
func TestTLSFunctionsThatPanic(t *testing.T) {
	server, client, _ := certificate(t)
	client = client.Clone()
	client.Certificates = server.Certificates
	functions := map[string]func(c *tls.Config, f func(net.Conn)){
		"GetConfigForClient": func(c *tls.Config, f func(net.Conn)) {
			c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) { f(h.Conn); return nil, nil }
		},
		"GetCertificate": func(c *tls.Config, f func(net.Conn)) {
			c.Certificates = nil
			c.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
				f(h.Conn)
				return &server.Certificates[0], nil
			}
		},
		"VerifyPeerCertificate": func(c *tls.Config, f func(net.Conn)) {
			c.ClientAuth = tls.RequireAnyClientCert
			c.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { f(nil); return nil }
		},
		"VerifyConnection": func(c *tls.Config, f func(net.Conn)) {
			c.VerifyConnection = func(tls.ConnectionState) error { f(nil); return nil }
		},
	}
	overModes(t, func(t *testing.T, o Options) {
		for name, set := range functions {
			for _, end := range []string{"panic", "Goexit", "reset"} {
				t.Run(name+"/"+end, func(t *testing.T) {
					panics, failures, opens := make(chan any, 1), make(chan error, 1), make(chan struct{}, 1)
					entered, good := make(chan struct{}, 100), new(atomic.Bool)
					config := server.Clone()
					set(config, func(nc net.Conn) {
						entered <- struct{}{}
						if nc != nil {
							_, _ = nc.RemoteAddr().String(), nc.LocalAddr().String()
						}
						switch {
						case good.Load():
						case end == "panic":
							panic(name)
						case end == "Goexit":
							runtime.Goexit()
						}
					})
					o.TLS = config
					s := start(t, Handler{
						OnPanic:          func(_ *Conn, v any) { panics <- v },
						OnHandshakeError: func(_ *Conn, err error) { failures <- err },
						OnOpen:           func(*Conn) { opens <- struct{}{} },
						OnClose:          func(*Conn, error) {},
					}, o)
					raw := dial(t, s)
					if end == "reset" {
						hello := helloOf(t, client)
						if _, err := raw.Write(hello); err != nil {
							t.Fatal(err)
						}
						endBy(raw, aborts)
						receive(t, "failure of the handshake", failures)
						return
					}
					go func() { _ = tls.Client(raw, client).Handshake() }()
					receive(t, "call of the function", entered)
					if end == "panic" {
						if v := receive(t, "call of OnPanic", panics); v != name {
							t.Errorf("OnPanic got %v", v)
						}
					}
					var failed *HandlerError
					if err := receive(t, "call of OnHandshakeError", failures); !errors.As(err, &failed) {
						t.Errorf("OnHandshakeError got %v", err)
					}
					good.Store(true)
					if err := tls.Client(dial(t, s), client).Handshake(); err != nil {
						t.Errorf("the next client: %v", err)
					}
					receive(t, "call of OnOpen", opens)
				})
			}
		}
	})
}

// helloOf returns the first message of a client.
func helloOf(t *testing.T, config *tls.Config) []byte {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _ = tls.Client(near, config).Handshake() }()
	p := make([]byte, 8<<10)
	n, err := far.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return p[:n]
}

// TestOwnBytesAreBounded lets crypto/tls write by itself, as it answers each KeyUpdate, while the
// peer sends and does not read. What is pending must be bounded, and the stream must go on when
// the peer reads.
// Promise: unet/event/own-bytes
func TestOwnBytesAreBounded(t *testing.T) {
	server, client, _ := certificate(t)
	const limit, answer = 32 << 10, 1 << 10
	for _, mode := range []Mode{ModeRing, ModeEpoll} {
		for _, duplex := range []bool{false, true} {
			t.Run(mode.String(), func(t *testing.T) {
				if mode == ModeRing {
					needRing(t)
				} else {
					needEpoll(t)
				}
				most := 0
				conns := make(chan *Conn, 1)
				s := start(t, Handler{
					OnOpen: func(c *Conn) {
						c.SetFullDuplex(duplex)
						conns <- c
					},
					OnData: func(c *Conn, p []byte) {
						for range len(p) / 1000 {
							_, _ = (*wire)(c.secure).Write(make([]byte, answer)) // as crypto/tls does
							most = max(most, c.Pending())
						}
					},
				}, Options{Mode: mode, Loops: 1, TLS: server, WriteLimit: limit, ListenConfig: &net.ListenConfig{
					Control: func(_, _ string, raw syscall.RawConn) error {
						return raw.Control(func(fd uintptr) {
							_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 16<<10)
						})
					},
				}})
				raw := dial(t, s)
				peer := tls.Client(raw, client)
				go func() {
					piece := make([]byte, 10_000)
					for {
						if _, err := peer.Write(piece); err != nil {
							return
						}
					}
				}()
				c := receive(t, "OnOpen", conns)
				stalled := func() bool {
					c.mu.Lock()
					defer c.mu.Unlock()
					return c.blocked()
				}
				await(t, "reading stops", stalled)
				// The peer reads on: the answers are not records, but the bytes tell.
				n, err := io.CopyN(io.Discard, raw, 4*limit)
				if err != nil {
					t.Errorf("the peer received %d bytes of the answers: %v", n, err)
				}
				_ = raw.Close()
				await(t, "it is closed", c.isClosed)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if bound := 2*limit + recordBytes + 10*answer; most > bound {
					t.Errorf("%d bytes were pending, want at most %d", most, bound)
				}
			})
		}
	}
}

// TestSendFileWithoutDescriptors sends a file to a peer that reads slowly while the process has
// no descriptor left.
// Promise: unet/event/sendfile-descriptors
func TestSendFileWithoutDescriptors(t *testing.T) {
	const size = 12 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	overModes(t, func(t *testing.T, o Options) {
		s := start(t, Handler{OnData: func(c *Conn, _ []byte) {
			if err := c.SendFile(f, 0, size, func(error) { _ = c.Close() }); err != nil {
				t.Error(err)
			}
		}}, o)
		c := dial(t, s)
		_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
		await(t, "it is accepted", func() bool { return s.Stats().Open == 1 })
		var before syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		set := func(limit syscall.Rlimit) {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
				t.Fatal(err)
			}
		}
		defer set(before)
		set(syscall.Rlimit{Cur: 3, Max: before.Max})
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		got := int64(0)
		for end := error(nil); end == nil; {
			var n int64
			n, end = io.CopyN(io.Discard, c, 1<<20)
			got += n
			time.Sleep(3 * fileWait) // so that the goroutine gives up, and the loop begins again
			if end != nil && end != io.EOF {
				t.Error(end)
			}
		}
		if got != size {
			t.Errorf("the peer received %d of %d bytes", got, size)
		}
	})
}

// TestListenWaitsForTheAddress listens on an address that becomes free meanwhile, as after the end
// of a process whose ring held the socket, and on one that does not.
// Promise: unet/event/address-in-use
func TestListenWaitsForTheAddress(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		s := start(t, Handler{}, o)
		for _, network := range []string{"tcp", "udp"} {
			var held io.Closer
			address := ""
			if network == "tcp" {
				ln, err := net.Listen(network, "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				held, address = ln, ln.Addr().String()
			} else {
				pc, err := net.ListenPacket(network, "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				held, address = pc, pc.LocalAddr().String()
			}
			listen := func() error {
				if network == "tcp" {
					other, err := Listen(network, address, Handler{}, o)
					if err == nil {
						err = other.Close()
					}
					return err
				}
				_, err := s.ListenPacket(network, address, PacketHandler{OnPacket: func(*PacketConn, Peer, []byte) {}})
				return err
			}
			if err := listen(); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("%s: an address in use: %v", network, err)
			}
			time.AfterFunc(bindTime/20, func() { _ = held.Close() })
			if err := listen(); err != nil {
				t.Errorf("%s: an address that became free: %v", network, err)
			}
		}
	})
}
