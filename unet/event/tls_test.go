// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// certificate makes a certificate for the loopback address, and the configurations of both
// sides.
func certificate(t testing.TB) (server, client *tls.Config, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "loopback"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	file = filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	server = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return server, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}, file
}

// overTLS runs test with each backend and each version of TLS.
func overTLS(t *testing.T, test func(t *testing.T, o Options, client *tls.Config)) {
	server, client, _ := certificate(t)
	for _, version := range []uint16{tls.VersionTLS13, tls.VersionTLS12} {
		t.Run(strings.ReplaceAll(tls.VersionName(version), " ", ""), func(t *testing.T) {
			overModes(t, func(t *testing.T, o Options) {
				o.TLS = server
				client := client.Clone()
				client.MaxVersion = version
				test(t, o, client)
			})
		})
	}
}

// Promise: unet/event/tls-onclose-distinguishes
func TestTLSEcho(t *testing.T) {
	overTLS(t, func(t *testing.T, o Options, client *tls.Config) {
		states := make(chan *tls.ConnectionState, 100)
		s := start(t, Handler{
			OnOpen: func(c *Conn) { states <- c.TLSState() },
			OnData: func(c *Conn, p []byte) { _, _ = c.Write(p) },
		}, o)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				c := tls.Client(dial(t, s), client)
				for _, n := range []int{1, 100, 16 << 10, bulkTotal(1 << 20)} {
					exchange(t, c, random(n, uint64(i)))
				}
				_ = c.CloseWrite()
				if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("after close_notify: %d, %v", n, err)
				}
				_ = c.Close()
			})
		}
		wg.Wait()
		if st := receive(t, "OnOpen", states); st == nil || !st.HandshakeComplete || st.Version != client.MaxVersion {
			t.Errorf("state %+v", st)
		}
		await(t, "all are closed", func() bool { return s.Stats().Open == 0 })
	})
}

// TestTLSEnds ends connections from either side: close_notify is sent, and an end without
// it is reported.
// Promise: unet/event/tls-onclose-distinguishes
func TestTLSEnds(t *testing.T) {
	overTLS(t, func(t *testing.T, o Options, client *tls.Config) {
		closed := make(chan error, 1)
		s := start(t, Handler{
			OnOpen: func(c *Conn) {
				_, _ = c.Writev(net.Buffers{[]byte("hel"), []byte("lo")})
			},
			OnData: func(c *Conn, p []byte) {
				switch p[0] {
				case 'c':
					_, _ = c.Write([]byte("bye"))
					_ = c.Close()
				case 'a':
					c.Abort()
				case 'w':
					if err := c.WriteFunc([]byte("bye"), func(err error) {
						if err != nil {
							t.Errorf("WriteFunc: %v", err)
						}
						_ = c.CloseWrite()
					}); err != nil {
						t.Errorf("WriteFunc: %v", err)
					}
				}
			},
			OnClose: func(_ *Conn, err error) { closed <- err },
		}, o)
		for what, want := range map[string]struct {
			rest     string
			err, end error
		}{
			"c": {"bye", nil, nil},
			"w": {"bye", nil, io.EOF},
			"a": {"", nil, net.ErrClosed},
		} {
			c := tls.Client(dial(t, s), client)
			if p := make([]byte, 5); true {
				if _, err := io.ReadFull(c, p); err != nil || string(p) != "hello" {
					t.Fatalf("%q, %v", p, err)
				}
			}
			if _, err := c.Write([]byte(what)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(c)
			if string(got) != want.rest || (err != nil) != (what == "a") {
				t.Errorf("%s: %q, %v", what, got, err)
			}
			_ = c.Close()
			if err := receive(t, "OnClose", closed); err != want.end {
				t.Errorf("%s: OnClose got %v, want %v", what, err, want.end)
			}
		}
		// A truncated record.
		raw := dial(t, s)
		c := tls.Client(raw, client)
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write([]byte{23, 3, 3, 0, 100, 1, 2, 3})
		_ = raw.(*net.TCPConn).CloseWrite()
		if err := receive(t, "OnClose", closed); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a truncated record: %v", err)
		}
		// A record that is forged.
		raw = dial(t, s)
		c = tls.Client(raw, client)
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write(append([]byte{23, 3, 3, 0, 100}, make([]byte, 100)...))
		if err := receive(t, "OnClose", closed); err == nil || err == io.EOF {
			t.Errorf("a forged record: %v", err)
		} else if _, ok := err.(*net.OpError); !ok {
			t.Errorf("a forged record: a %T: %v", err, err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || !strings.HasPrefix(err.Error(), "remote error: tls: ") {
			t.Errorf("the peer that has forged a record gets no alert: %v", err)
		}
	})
}

// TestTLSHandshakeFails uses clients that do not finish the handshake: OnHandshakeError is
// called for each, and no other callback.
// Promise: unet/event/tls-onclose-distinguishes
func TestTLSHandshakeFails(t *testing.T) {
	overTLS(t, func(t *testing.T, o Options, client *tls.Config) {
		failed := make(chan error, 1)
		s := start(t, Handler{
			OnOpen:           func(*Conn) { t.Error("OnOpen") },
			OnClose:          func(*Conn, error) { t.Error("OnClose") },
			OnHandshakeError: func(_ *Conn, err error) { failed <- err },
		}, o)
		client.RootCAs = x509.NewCertPool()
		for name, try := range map[string]func(c net.Conn){
			"no TLS": func(c net.Conn) { _, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n")) },
			"gone":   func(c net.Conn) { _ = c.Close() },
			"reset":  func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() },
			"unknown authority": func(c net.Conn) {
				if err := tls.Client(c, client).Handshake(); err == nil {
					t.Error("a certificate of an unknown authority was accepted")
				}
				_ = c.Close()
			},
			"half a hello": func(c net.Conn) { _, _ = c.Write([]byte{22, 3, 1, 0, 200, 1}); _ = c.(*net.TCPConn).CloseWrite() },
		} {
			try(dial(t, s))
			if err := receive(t, name, failed); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		await(t, "all are closed", func() bool { return s.Stats().Open == 0 })
		dial(t, s) // the last client sends nothing; the server's end closes it
		await(t, "the connection is accepted", func() bool { return s.Stats().Open == 1 })
		_ = s.Close()
		if err := receive(t, "OnHandshakeError at the end", failed); err == nil {
			t.Error("no error")
		}
	})
}

// TestTLSDial dials from a server, and checks the certificate.
// Promise: unet/event/tls-onclose-distinguishes
func TestTLSDial(t *testing.T) {
	overTLS(t, func(t *testing.T, o Options, client *tls.Config) {
		s := start(t, echoes(), o)
		client.ServerName = ""
		want := random(300_000, 1)
		var got []byte
		done := make(chan []byte, 1)
		c, err := s.Dial(t.Context(), "tcp", s.Addr().String(), ConnOptions{TLS: client, Handler: &Handler{
			OnData: func(c *Conn, p []byte) {
				if got = append(got, p...); len(got) == len(want) {
					done <- got
				}
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if st := c.TLSState(); st == nil || len(st.VerifiedChains) == 0 {
			t.Errorf("state %+v", st)
		}
		if _, err := c.Write(want); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, "the echo", done); !bytes.Equal(got, want) {
			t.Error("changed")
		}
		_ = c.Close()
		client.ServerName = "example.com"
		if _, err := s.Dial(t.Context(), "tcp", s.Addr().String(), ConnOptions{TLS: client}); err == nil {
			t.Error("a certificate for another name was accepted")
		}
		await(t, "all are closed", func() bool { return s.Stats().Open == 0 })
	})
}

// TestTLSPeerThatDoesNotRead checks that the server holds a bounded number of bytes for
// such a peer, and loses none.
// Promise: unet/event/tls-onclose-distinguishes
func TestTLSPeerThatDoesNotRead(t *testing.T) {
	overTLS(t, func(t *testing.T, o Options, client *tls.Config) {
		o.WriteLimit, o.ListenConfig = 20_000, smallBuffers()
		s := start(t, Handler{OnData: func(c *Conn, p []byte) {
			if _, err := c.Write(p); err != nil {
				t.Errorf("write: %v", err)
			}
			if n := c.Pending(); n > o.WriteLimit+2*recordBytes {
				t.Errorf("%d bytes are pending", n)
			}
		}}, o)
		c := tls.Client(dial(t, s), client)
		want := random(bulkTotal(4<<20), 1)
		go func() { _, _ = c.Write(want) }()
		time.Sleep(50 * time.Millisecond) // the buffers of the server fill up
		got := make([]byte, len(want))
		if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d of %d bytes, equal %v: %v", n, len(want), bytes.Equal(got, want), err)
		}
	})
}

// countedSends is a backend that notes the largest piece that was sent at once.
type countedSends struct {
	backend
	most atomic.Int64
}

func (b *countedSends) sendNow(c *Conn, p []byte) int {
	n := b.backend.sendNow(c, p)
	b.most.Store(max(b.most.Load(), int64(n)))
	return n
}

// TestTLSRecordsInOneSend checks that records are sent together: those of one Write, and those
// that answer records which have arrived together.
func TestTLSRecordsInOneSend(t *testing.T) {
	const size = 4 * recordBytes
	answer := random(size, 1)
	for name, onData := range map[string]func(c *Conn, p []byte){
		"one Write": func(c *Conn, p []byte) {
			if p[0] == answer[0] { // the first of the records
				_, _ = c.Write(answer)
			}
		},
		"echo": func(c *Conn, p []byte) { _, _ = c.Write(p) },
	} {
		t.Run(name, func(t *testing.T) {
			overTLS(t, func(t *testing.T, o Options, client *tls.Config) {
				if o.Mode == ModeNet {
					return // It has no loop: each record is a Write of crypto/tls.
				}
				o.TLS, client.DynamicRecordSizingDisabled = o.TLS.Clone(), true
				o.TLS.DynamicRecordSizingDisabled = true
				sends := make(chan *countedSends, 1)
				s := start(t, Handler{
					OnOpen: func(c *Conn) {
						b := &countedSends{backend: c.back}
						c.back = b
						sends <- b
					},
					OnData: onData,
				}, o)
				c := tls.Client(dial(t, s), client)
				defer c.Close()
				question, got := answer, make([]byte, size)
				if name == "one Write" {
					question = answer[:1]
				}
				var b *countedSends
				for end := time.Now().Add(10 * time.Second); ; {
					if _, err := c.Write(question); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, answer) {
						t.Fatalf("equal %v: %v", bytes.Equal(got, answer), err)
					}
					if b == nil {
						b = receive(t, "OnOpen", sends)
					}
					most := b.most.Load()
					if most > 3*recordBytes {
						return
					}
					if time.Now().After(end) {
						t.Fatalf("at most %d bytes are sent at once", most)
					}
				}
			})
		})
	}
}

// TestTLSForeignClients connects with openssl and Python.
// Promise: unet/event/tls-onclose-distinguishes
func TestTLSForeignClients(t *testing.T) {
	server, _, file := certificate(t)
	for name, args := range map[string]func(text, address string) []string{
		"openssl": func(_, address string) []string {
			return []string{"s_client", "-quiet", "-verify_return_error", "-CAfile", file, "-connect", address}
		},
		"python3": func(text, address string) []string {
			return []string{"-c", `
import socket, ssl, sys
c = ssl.create_default_context(cafile=sys.argv[1])
host, port = sys.argv[3].split(":")
want = open(sys.argv[2], "rb").read()
with c.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host) as s:
    s.sendall(want)
    got = b""
    while len(got) < len(want):
        p = s.recv(65536)
        assert p, "the end came early"
        got += p
    s.unwrap()
sys.stdout.buffer.write(got)
`, file, text, address}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("needs %s", name)
			}
			overModes(t, func(t *testing.T, o Options) {
				o.TLS = server
				s := start(t, Handler{OnData: func(c *Conn, p []byte) {
					_, _ = c.Write(p)
					if n, _ := c.Value().(int); n+len(p) < 45_000 {
						c.SetValue(n + len(p))
						return
					}
					_ = c.Close()
				}}, o)
				text := filepath.Join(t.TempDir(), "text")
				want := []byte(strings.Repeat("a line of text\n", 3000))
				if err := os.WriteFile(text, want, 0o600); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), testPatience)
				defer cancel()
				client := exec.CommandContext(ctx, name, args(text, s.Addr().String())...)
				client.Stdin = bytes.NewReader(want)
				got, err := client.Output()
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d of %d bytes: %v", len(got), len(want), err)
				}
			})
		})
	}
}

// heldConn runs a function before each Write, once it is set.
type heldConn struct {
	net.Conn
	write atomic.Pointer[func()]
}

func (c *heldConn) Write(p []byte) (int, error) {
	if f := c.write.Load(); f != nil {
		(*f)()
	}
	return c.Conn.Write(p)
}

// TestTLSLentToAClosedConnection ends a connection while WriteFunc encrypts: either WriteFunc
// returns an error, or done is called.
// Promise: unet/event/writefunc-returns-memory
func TestTLSLentToAClosedConnection(t *testing.T) {
	server, client, _ := certificate(t)
	for _, mode := range []Mode{ModeRing, ModeEpoll} {
		t.Run(mode.String(), func(t *testing.T) {
			if mode == ModeRing {
				needRing(t)
			} else {
				needEpoll(t)
			}
			conns, order := make(chan *Conn, 1), make(chan string, 3)
			s := start(t, Handler{
				OnOpen:  func(c *Conn) { conns <- c },
				OnClose: func(*Conn, error) { order <- "OnClose" },
			}, Options{Mode: mode, Loops: 1, TLS: server})
			peer := tls.Client(dial(t, s), client)
			if err := peer.Handshake(); err != nil {
				t.Fatal(err)
			}
			c := receive(t, "OnOpen", conns)

			// The connection gets another crypto/tls. The test acts between it and the connection.
			near, far := net.Pipe()
			held := &heldConn{Conn: near}
			other := tls.Server(held, server)
			go func() { _ = tls.Client(far, client).Handshake() }()
			if err := other.Handshake(); err != nil {
				t.Fatal(err)
			}
			held.Conn = (*wire)(c.secure)
			swapped := make(chan struct{})
			c.Post(func() { c.secure.conn = other; close(swapped) })
			receive(t, "end of Post", swapped)
			end := func() {
				c.Abort()
				turn := make(chan struct{})
				c.Post(func() { close(turn) }) // after the loop has seen the Abort
				receive(t, "turn", turn)
				order <- "encrypted"
			}
			held.write.Store(&end)
			if err := c.WriteFunc([]byte("x"), func(error) { order <- "done" }); err != nil {
				t.Errorf("WriteFunc returned %v for bytes that were sent", err)
			}
			for _, want := range []string{"encrypted", "done", "OnClose"} {
				if got := receive(t, want, order); got != want {
					t.Errorf("%s came before %s", got, want)
				}
			}
		})
	}
}

// TestTLSDialEndsWithItsContext dials a peer that does not answer the handshake.
func TestTLSDialEndsWithItsContext(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		s := start(t, Handler{}, o)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if c, err := ln.Accept(); err == nil {
				_, _ = c.Read(make([]byte, 1)) // the hello
				cancel()
				defer c.Close()
				_, _ = io.Copy(io.Discard, c)
			}
		}()
		failed := make(chan error, 1)
		h := Handler{OnHandshakeError: func(_ *Conn, err error) { failed <- err }}
		if _, err := s.Dial(ctx, "tcp", ln.Addr().String(), ConnOptions{TLS: &tls.Config{}, Handler: &h}); !errors.Is(err, context.Canceled) {
			t.Errorf("Dial returned %v", err)
		}
		if err := receive(t, "OnHandshakeError", failed); err == nil {
			t.Error("no error")
		}
		await(t, "the connection is closed", func() bool { return s.Stats().Open == 0 })
	})
}

// TestDataAfterCloseNotify sends bytes after close_notify to a handler that keeps the
// connection open. They must be dropped, not kept.
func TestDataAfterCloseNotify(t *testing.T) {
	overTLS(t, func(t *testing.T, o Options, client *tls.Config) {
		eof := make(chan *Conn, 1)
		s := start(t, Handler{OnEOF: func(c *Conn) { eof <- c }}, o)
		raw := dial(t, s)
		peer := tls.Client(raw, client)
		if err := peer.Handshake(); err != nil {
			t.Fatal(err)
		}
		if err := peer.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		c := receive(t, "OnEOF", eof)
		if c.secure == nil {
			return // ModeNet: nothing is read after the end
		}
		_ = raw.SetDeadline(time.Now().Add(testPatience)) // crypto/tls has let it pass
		const more = 1 << 20
		if _, err := raw.Write(make([]byte, more)); err != nil {
			t.Fatal(err)
		}
		_ = raw.(*net.TCPConn).CloseWrite()
		await(t, "the end of the stream was received", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.state.eof
		})
		kept := make(chan int, 1)
		c.Post(func() { kept <- len(c.secure.in) })
		if n := receive(t, "the length of the input", kept); n > 0 {
			t.Errorf("%d bytes that follow close_notify are kept", n)
		}
		c.Abort()
	})
}
