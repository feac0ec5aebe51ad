// SPDX-License-Identifier: MIT

package ktls_test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/ktls"
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

func serverConfig() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{ktls.TestCertificate()}}
}

func clientConfig() *tls.Config {
	leaf, err := x509.ParseCertificate(ktls.TestCertificate().Certificate[0])
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

func needKernel(t testing.TB) {
	t.Helper()
	if name, reason := ktls.Backend(); name != "kernel" {
		if os.Getenv(ringtest.LaneEnv) != "" {
			t.Fatalf("the kernel of a lane has TLS: %s", reason)
		}
		t.Skipf("needs the kernel's TLS (CONFIG_TLS): %s", reason)
	}
}

// hidden is a connection without SyscallConn.
type hidden struct{ net.Conn }

// bed is what one kind of test bed uses: package net or unet below, the kernel or crypto/tls
// for sending.
type bed struct {
	listen func(network, address string) (net.Listener, error)
	dial   func(network, address string) (net.Conn, error)
	below  func(net.Conn) net.Conn
	name   string // of the expected backend
}

// eachBed runs a test on each kind of test bed.
func eachBed(t *testing.T, test func(t *testing.T, b bed)) {
	for _, layer := range []string{"net", "unet"} {
		for _, name := range []string{"kernel", "crypto/tls"} {
			t.Run(layer+"/"+strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
				b := bed{net.Listen, net.Dial, func(c net.Conn) net.Conn { return c }, name}
				if layer == "unet" {
					b.listen, b.dial = unet.Listen, unet.Dial
				}
				if name == "kernel" {
					needKernel(t)
				} else {
					b.below = func(c net.Conn) net.Conn { return hidden{c} }
				}
				test(t, b)
			})
		}
	}
}

// sockets returns both ends of a TCP connection.
func (b bed) sockets(t testing.TB) (dialed, accepted net.Conn) {
	t.Helper()
	l, err := b.listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialed, err = b.dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return dialed, accepted
}

// pair returns a server, and a client of crypto/tls, after the handshake.
func (b bed) pair(t testing.TB, server *ktls.Config, client *tls.Config) (*ktls.Conn, *tls.Conn) {
	t.Helper()
	dialed, accepted := b.sockets(t)
	s, c := ktls.Server(b.below(accepted), server), tls.Client(dialed, client)
	shake(t, s, c)
	if name, reason := s.Backend(); name != b.name {
		t.Fatalf("backend %s, because %s, want %s", name, reason, b.name)
	}
	return s, c
}

func shake(t testing.TB, a, b interface{ Handshake() error }) {
	t.Helper()
	other := make(chan error, 1)
	go func() { other <- b.Handshake() }()
	if err := a.Handshake(); err != nil {
		t.Fatalf("handshake: %v", err)
	}
	if err := <-other; err != nil {
		t.Fatalf("the peer's handshake: %v", err)
	}
}

// size returns n, or less in a short test: emulation takes seconds to encrypt a few MiB.
func size(n int) int {
	if testing.Short() {
		return n / 16
	}
	return n
}

// random returns n bytes that differ.
func random(n int) []byte {
	p := make([]byte, n)
	rand.Read(p)
	return p
}

// wantRead reads as many bytes as want has, and compares them. The writer has not ended.
func wantRead(t testing.TB, r io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil {
		t.Fatalf("read %d of %d bytes: %v", n, len(want), err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes differ", len(want))
	}
}

// TestWrite writes pieces of many sizes in both directions at once.
// Promise: unet/unet-ktls-sends
func TestWrite(t *testing.T) {
	eachBed(t, func(t *testing.T, b bed) {
		s, c := b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
		for _, n := range []int{0, 1, 100, 16383, 16384, 16385, 70000, 1 << 20} {
			down, up := random(n), random(n)
			var all sync.WaitGroup
			for _, way := range []struct {
				w    io.Writer
				data []byte
			}{{s, down}, {c, up}} {
				all.Go(func() {
					if m, err := way.w.Write(way.data); m != n || err != nil {
						t.Errorf("wrote %d of %d bytes: %v", m, n, err)
					}
				})
			}
			all.Go(func() { wantRead(t, s, up) })
			wantRead(t, c, down)
			all.Wait()
		}
	})
}

// TestReadFrom sends files, parts of files and other readers. The connection stays open:
// all bytes must leave the kernel without a further call.
// Promise: unet/unet-ktls-sends
func TestReadFrom(t *testing.T) {
	eachBed(t, func(t *testing.T, b bed) {
		s, c := b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
		for _, n := range []int{0, 1, 4096, 16384, 16385, 100_000, size(5<<20) + 7} {
			want := random(n)
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, want, 0o600); err != nil {
				t.Fatal(err)
			}
			part := min(n, 10)
			for kind, r := range map[string]func(f *os.File) (io.Reader, []byte){
				"whole": func(f *os.File) (io.Reader, []byte) { return f, want },
				"rest":  func(f *os.File) (io.Reader, []byte) { f.Seek(int64(part), 0); return f, want[part:] },
				"first": func(f *os.File) (io.Reader, []byte) { return io.LimitReader(f, int64(n-part)), want[:n-part] },
				"limit": func(f *os.File) (io.Reader, []byte) { return io.LimitReader(f, int64(n)+100), want },
				"plain": func(f *os.File) (io.Reader, []byte) { return struct{ io.Reader }{f}, want },
			} {
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				src, bytes := r(f)
				sent := make(chan error, 1)
				go func() {
					m, err := io.Copy(s, src)
					if err == nil && m != int64(len(bytes)) {
						err = fmt.Errorf("%s of %d: sent %d bytes", kind, n, m)
					}
					sent <- err
				}()
				wantRead(t, c, bytes)
				if err := <-sent; err != nil {
					t.Error(err)
				}
				f.Close()
			}
		}
		if _, err := s.ReadFrom(io.MultiReader()); err != nil {
			t.Error(err)
		}
	})
}

// TestPipe sends a source that sendfile does not support.
func TestPipe(t *testing.T) {
	eachBed(t, func(t *testing.T, b bed) {
		s, c := b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		go func() { w.Write([]byte("from a pipe")); w.Close() }()
		if n, err := s.ReadFrom(r); n != 11 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		wantRead(t, c, []byte("from a pipe"))
	})
}

func TestWritev(t *testing.T) {
	eachBed(t, func(t *testing.T, b bed) {
		s, c := b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
		bufs := net.Buffers{[]byte("head "), nil, []byte("body")}
		if n, err := s.Writev(&bufs); n != 9 || err != nil || len(bufs) != 0 {
			t.Fatalf("%d, %v, %d buffers left", n, err, len(bufs))
		}
		wantRead(t, c, []byte("head body"))
	})
}

func TestClientSide(t *testing.T) {
	eachBed(t, func(t *testing.T, b bed) {
		dialed, accepted := b.sockets(t)
		c, s := ktls.Client(b.below(dialed), &ktls.Config{TLS: clientConfig()}), tls.Server(accepted, serverConfig())
		shake(t, c, s)
		if name, reason := c.Backend(); name != b.name {
			t.Fatalf("backend %s, because %s", name, reason)
		}
		data := random(100_000)
		go c.Write(data)
		wantRead(t, s, data)
		go s.Write(data)
		wantRead(t, c, data)
	})
}

// TestHandshakes varies what precedes the traffic keys: session tickets, client
// certificates, resumption, a second hello.
// Promise: unet/unet-ktls-sends
func TestHandshakes(t *testing.T) {
	for name, change := range map[string]func(s, c *tls.Config){
		"no tickets":         func(s, c *tls.Config) { s.SessionTicketsDisabled = true },
		"client certificate": func(s, c *tls.Config) { s.ClientAuth = tls.RequireAnyClientCert; c.Certificates = s.Certificates },
		"resumption":         func(s, c *tls.Config) { c.ClientSessionCache = tls.NewLRUClientSessionCache(1) },
		"explicit keys": func(s, c *tls.Config) {
			s.SetSessionTicketKeys([][32]byte{{1}})
			c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		},
		"second hello": func(s, c *tls.Config) {
			s.CurvePreferences, c.CurvePreferences = []tls.CurveID{tls.CurveP384}, []tls.CurveID{tls.CurveP256, tls.CurveP384}
		},
		"long chain": func(s, c *tls.Config) { // more than one record
			chain := &s.Certificates[0]
			for len(chain.Certificate) < 60 {
				chain.Certificate = append(chain.Certificate, chain.Certificate[0])
			}
			c.InsecureSkipVerify = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachBed(t, func(t *testing.T, b bed) {
				server, client := serverConfig(), clientConfig()
				change(server, client)
				config := &ktls.Config{TLS: server}
				for round := range 3 {
					s, c := b.pair(t, config, client)
					if _, err := s.Write([]byte("hello")); err != nil {
						t.Fatal(err)
					}
					wantRead(t, c, []byte("hello")) // and the session ticket
					go c.Write([]byte("hi"))
					wantRead(t, s, []byte("hi"))
					if want := client.ClientSessionCache != nil && round > 0; c.ConnectionState().DidResume != want || s.ConnectionState().DidResume != want {
						t.Errorf("round %d: resumed %t and %t", round, c.ConnectionState().DidResume, s.ConnectionState().DidResume)
					}
				}
			})
		})
	}
}

// TestFallback negotiates what the kernel is not given.
func TestFallback(t *testing.T) {
	eachBed(t, func(t *testing.T, b bed) {
		reason := "only TLS 1.3"
		if b.name != "kernel" {
			reason = ""
		}
		client := clientConfig()
		client.MaxVersion = tls.VersionTLS12

		b.name = "crypto/tls"
		s, c := b.pair(t, &ktls.Config{TLS: serverConfig()}, client)
		if _, got := s.Backend(); got == "" || !strings.Contains(got, reason) {
			t.Errorf("reason %q", got)
		}
		go s.Write([]byte("old"))
		wantRead(t, c, []byte("old"))
		if err := s.RawWrite(func(uintptr) bool { panic("called") }); err == nil {
			t.Error("RawWrite without the kernel")
		}

		dialed, accepted := b.sockets(t)
		required := ktls.Server(b.below(accepted), &ktls.Config{TLS: serverConfig(), Require: true})
		go tls.Client(dialed, client).Handshake()
		if err := required.Handshake(); err == nil || !strings.Contains(err.Error(), "Config.Require") {
			t.Errorf("Require: %v", err)
		}
		if _, err := required.Write([]byte("x")); err == nil {
			t.Error("wrote without the kernel")
		}

	})
}

// TestEnds compares the ends of a connection with those of crypto/tls.
// Promise: unet/unet-ktls-sends
func TestEnds(t *testing.T) {
	eachBed(t, func(t *testing.T, b bed) {
		t.Run("Close", func(t *testing.T) {
			s, c := b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("the peer read %d, %v", n, err)
			}
			if _, err := s.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Write after Close: %v", err)
			}
			if err := s.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("second Close: %v", err)
			}
		})
		t.Run("CloseWrite", func(t *testing.T) {
			s, c := b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
			if err := s.CloseWrite(); err != nil {
				t.Error(err)
			}
			if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("the peer read %d, %v", n, err)
			}
			if _, err := s.Write([]byte("x")); err == nil || err.Error() != "tls: protocol is shutdown" {
				t.Errorf("Write after CloseWrite: %v", err)
			}
			go c.Write([]byte("more"))
			wantRead(t, s, []byte("more"))
		})
		t.Run("peer", func(t *testing.T) {
			s, c := b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
			c.Close()
			if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("read %d, %v", n, err)
			}
		})
		t.Run("cut", func(t *testing.T) {
			s, c := b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
			c.NetConn().Close()
			if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF { // as crypto/tls at the end of a record
				t.Errorf("read %d, %v", n, err)
			}
		})
		t.Run("forged", func(t *testing.T) {
			s, c := b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
			c.NetConn().Write(append([]byte{23, 3, 3, 0, 32}, random(32)...))
			_, err := s.Read(make([]byte, 1))
			if err == nil || err.Error() != "local error: tls: bad record MAC" {
				t.Errorf("read %v", err)
			}
			if _, err2 := s.Write([]byte("x")); err2 == nil || err2.Error() != err.Error() {
				t.Errorf("wrote %v", err2)
			}
			if _, err := c.Read(make([]byte, 1)); err == nil || err.Error() != "remote error: tls: bad record MAC" {
				t.Errorf("the peer read %v", err)
			}
		})
	})
}

// TestPeerThatDoesNotRead ends writes by a deadline and by Close.
// Promise: unet/unet-ktls-sends
func TestPeerThatDoesNotRead(t *testing.T) {
	eachBed(t, func(t *testing.T, b bed) {
		file, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := file.Truncate(64 << 20); err != nil {
			t.Fatal(err)
		}
		zeros := make([]byte, 64<<20) // not within the measured time
		for name, send := range map[string]func(s *ktls.Conn) error{
			"Write":    func(s *ktls.Conn) error { _, err := s.Write(zeros); return err },
			"ReadFrom": func(s *ktls.Conn) error { file.Seek(0, 0); _, err := s.ReadFrom(file); return err },
		} {
			s, _ := b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
			s.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			if err := send(s); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			s, _ = b.pair(t, &ktls.Config{TLS: serverConfig()}, clientConfig())
			sent := make(chan error, 1)
			go func() { sent <- send(s) }()
			select {
			case err := <-sent:
				t.Fatalf("%s did not wait: %v", name, err)
			case <-time.After(50 * time.Millisecond): // it waits now, or Close comes first
			}
			begin := time.Now()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := <-sent; !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("%s: Close took %v", name, took)
			}
		}
	})
}

// TestCallbacks checks what the program's callbacks get.
func TestCallbacks(t *testing.T) {
	eachBed(t, func(t *testing.T, b bed) {
		dialed, accepted := b.sockets(t)
		below := b.below(accepted)
		var log bytes.Buffer
		var calls int
		check := func(hello *tls.ClientHelloInfo) {
			calls++
			if hello.Conn != below || hello.ServerName != "localhost" || hello.Context() == nil {
				t.Errorf("a callback got %T for %q", hello.Conn, hello.ServerName)
			}
		}
		chosen := &tls.Config{KeyLogWriter: &log, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			check(hello)
			c := ktls.TestCertificate()
			return &c, nil
		}}
		s := ktls.Server(below, &ktls.Config{TLS: &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			check(hello)
			return chosen, nil
		}}})
		if name, reason := s.Backend(); name != "crypto/tls" || reason == "" {
			t.Errorf("before the handshake: %q, %q", name, reason)
		}
		c := tls.Client(dialed, clientConfig())
		shake(t, s, c)
		if calls != 2 {
			t.Errorf("%d callbacks", calls)
		}
		if got := strings.Count(log.String(), "\n"); got != 4 {
			t.Errorf("%d lines in the log of keys", got)
		}
		if name, _ := s.Backend(); name != b.name {
			t.Errorf("backend %s", name)
		}
	})
}

// TestHTTP serves files by net/http, which calls ReadFrom.
func TestHTTP(t *testing.T) {
	eachBed(t, func(t *testing.T, b bed) {
		dir := t.TempDir()
		want := random(3<<20 + 1)
		if err := os.WriteFile(filepath.Join(dir, "file"), want, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := b.listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.FileServer(http.Dir(dir))}
		served := make(chan error, 1)
		go func() {
			served <- server.Serve(ktls.NewListener(belowListener{l, b}, &ktls.Config{TLS: serverConfig()}))
		}()
		transport := &http.Transport{TLSClientConfig: clientConfig()}
		for range 3 {
			r, err := (&http.Client{Transport: transport}).Get("https://" + l.Addr().String() + "/file")
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
		}
		transport.CloseIdleConnections()
		server.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
}

type belowListener struct {
	net.Listener
	b bed
}

func (l belowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.b.below(c), nil
}
