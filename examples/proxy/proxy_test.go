// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/examples/internal/accept/accepttest"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

const patience = time.Minute

// backendOf starts a server that answers each byte with its name, and the end of the
// stream with a full stop. It returns the address, and a function that ends the server.
func backendOf(t *testing.T, name string) (address string, end func()) {
	t.Helper()
	return listen(t, func(c net.Conn) {
		p := make([]byte, 1)
		for {
			if _, err := c.Read(p); err != nil {
				_, _ = io.WriteString(c, ".")
				return
			}
			_, _ = io.WriteString(c, name)
		}
	})
}

// listen starts a server that calls serve for each connection and then closes it.
func listen(t testing.TB, serve func(net.Conn)) (address string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), func() { _ = l.Close() }
}

// start starts a proxy; it ends with the test.
func start(t *testing.T, c config) (p *proxy, address string, end func(time.Duration) error) {
	t.Helper()
	c.timeout = patience
	p, err := c.proxy()
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.dialer.System.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.checkAll()
	served := make(chan error, 1)
	go func() { served <- p.serve(accepttest.Full(l)) }()
	var once sync.Once
	end = func(d time.Duration) (err error) {
		once.Do(func() { err = p.end(l, served, d, nil) })
		return err
	}
	t.Cleanup(func() { _ = end(0) })
	return p, l.Addr().String(), end
}

func TestOptions(t *testing.T) {
	good := config{backends: "127.0.0.1:1", interval: time.Second, timeout: time.Second}
	if err := good.valid(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*config){
		"-backends is empty: list at least one HOST:PORT": func(c *config) { c.backends = "" },
		`-backends: "x": want HOST:PORT`:                  func(c *config) { c.backends += ",x" },
		"-cert needs -key":                                func(c *config) { c.cert = "cert.pem" },
		"-key needs -cert":                                func(c *config) { c.key = "key.pem" },
		"-interval 0s: must be more than 0":               func(c *config) { c.interval = 0 },
		"-timeout -1s: must be more than 0":               func(c *config) { c.timeout = -time.Second },
		"-drain -1s: must not be negative":                func(c *config) { c.drain = -time.Second },
		"-callbacks and -cert exclude each other":         func(c *config) { c.callbacks, c.cert, c.key = true, "cert.pem", "key.pem" },
		`-check "healthy": a path begins with a slash`:    func(c *config) { c.check = "healthy" },
	} {
		c := good
		change(&c)
		if err := c.valid(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// asks sends a byte and returns the answer of a backend with a name of one byte.
func asks(t *testing.T, c net.Conn) string {
	t.Helper()
	if _, err := c.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1)
	if _, err := io.ReadFull(c, p); err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// eachWay runs a test with each way to forward. f gets a configuration without backends.
func eachWay(t *testing.T, f func(t *testing.T, c config)) {
	for _, mode := range []unet.Mode{unet.ModeAuto, unet.ModeNet} {
		t.Run(mode.String(), func(t *testing.T) { f(t, config{mode: mode}) })
	}
	for _, mode := range []unet.Mode{unet.ModeAuto, unet.ModePlain, unet.ModeNet} {
		t.Run("callbacks/"+mode.String(), func(t *testing.T) { f(t, config{mode: mode, callbacks: true}) })
	}
}

// TestBalance spreads connections over the backends, leaves out one that ends, and
// finds it again.
// Promise: unet/example-proxy-forwards
func TestBalance(t *testing.T) {
	eachWay(t, func(t *testing.T, c config) {
		a, endA := backendOf(t, "a")
		b, _ := backendOf(t, "b")
		c.backends = a + "," + b
		p, address, _ := start(t, c)
		answers := map[string]int{}
		for range 6 {
			answers[asks(t, dial(t, address))]++
		}
		if answers["a"] != 3 || answers["b"] != 3 {
			t.Errorf("connections by backend: %v", answers)
		}
		endA()
		if got := asks(t, dial(t, address)) + asks(t, dial(t, address)); got != "bb" {
			t.Errorf("without a: %s", got)
		}
		s := p.stats()
		if s.Backends[a].Up || s.Backends[a].Failures == 0 || !s.Backends[b].Up || s.Accepted != 8 || s.Refused != 0 {
			t.Errorf("%+v", s)
		}
		l, err := net.Listen("tcp", a)
		if err != nil {
			t.Skipf("needs the address again: %v", err)
		}
		defer l.Close()
		if p.checkAll(); !p.stats().Backends[a].Up {
			t.Error("a backend that is back is not up")
		}
	})
}

// TestNoBackend closes the connection of a client that no backend takes.
// Promise: unet/example-proxy-forwards
func TestNoBackend(t *testing.T) {
	eachWay(t, func(t *testing.T, with config) {
		a, end := backendOf(t, "a")
		end()
		with.backends = a
		p, address, _ := start(t, with)
		if n, err := dial(t, address).Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%d, %v", n, err)
		}
		web := httptest.NewServer(p.metrics())
		defer web.Close()
		r, err := http.Get(web.URL + "/healthy")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("/healthy: %d", r.StatusCode)
		}
		if s := p.stats(); s.Refused != 1 || s.Backends[a].Up {
			t.Errorf("%+v", s)
		}
	})
}

// TestHalfClose ends the stream of a client whose backend answers the end.
// Promise: unet/example-proxy-forwards
func TestHalfClose(t *testing.T) {
	eachWay(t, func(t *testing.T, c config) {
		a, _ := backendOf(t, "a")
		c.backends = a
		_, address, _ := start(t, c)
		client := dial(t, address)
		if got := asks(t, client); got != "a" {
			t.Fatal(got)
		}
		_ = client.CloseWrite()
		if rest, err := io.ReadAll(client); string(rest) != "." || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
	})
}

// TestBytes sends much both ways at once.
// Promise: unet/example-proxy-forwards
func TestBytes(t *testing.T) {
	eachWay(t, func(t *testing.T, c config) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(c, c)
					_ = c.Close()
				}()
			}
		}()
		c.backends = l.Addr().String()
		p, address, end := start(t, c)
		data := make([]byte, 3<<20)
		_, _ = rand.Read(data)
		const clients = 4
		var all sync.WaitGroup
		for range clients {
			c := dial(t, address)
			all.Go(func() {
				_, _ = c.Write(data)
				_ = c.CloseWrite()
			})
			all.Go(func() {
				if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes of %d, or others, %v", len(got), len(data), err)
				}
			})
		}
		all.Wait()
		if err := end(patience); err != nil {
			t.Error(err)
		}
		if s := p.stats(); s.ToBackends != clients*int64(len(data)) || s.ToClients != s.ToBackends || s.Backends[l.Addr().String()].Open != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestClientVanishes resets a connection: the backend's ends too.
// Promise: unet/example-proxy-forwards
func TestClientVanishes(t *testing.T) {
	eachWay(t, func(t *testing.T, with config) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ended := make(chan error, 2)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, err := io.Copy(io.Discard, c)
					ended <- err
					_ = c.Close()
				}()
			}
		}()
		with.backends = l.Addr().String()
		_, address, _ := start(t, with)
		<-ended // the check
		c := dial(t, address)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = c.SetLinger(0)
		_ = c.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the connection to the backend stays open")
		}
	})
}

// TestEnd serves a connection until it ends, and cuts one that does not.
// Promise: unet/example-proxy-forwards
func TestEnd(t *testing.T) {
	eachWay(t, func(t *testing.T, with config) {
		a, _ := backendOf(t, "a")
		with.backends = a
		_, address, end := start(t, with)
		c := dial(t, address)
		asks(t, c)
		done := make(chan error, 1)
		go func() { done <- end(patience) }()
		for { // until the listener is closed
			late, err := net.Dial("tcp", address)
			if err != nil {
				break
			}
			_ = late.Close()
			time.Sleep(time.Millisecond)
		}
		if got := asks(t, c); got != "a" {
			t.Errorf("while draining: %q", got)
		}
		_ = c.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_, address, end = start(t, with)
		c = dial(t, address)
		asks(t, c)
		if err := end(time.Millisecond); err != nil {
			t.Error(err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection that was cut: %d, %v", n, err)
		}
	})
}

// TestTLS has clients speak TLS to the proxy, whose backend does not.
// Promise: unet/example-proxy-forwards
func TestTLS(t *testing.T) {
	eachWay(t, func(t *testing.T, c config) {
		if c.callbacks {
			t.Skip("-callbacks has no TLS: see TestOptions")
		}
		a, _ := backendOf(t, "a")
		dir := t.TempDir()
		c.backends, c.cert, c.key = a, filepath.Join(dir, "cert"), filepath.Join(dir, "key")
		roots := certificate(t, c.cert, c.key)
		_, address, _ := start(t, c)
		client := tls.Client(dial(t, address), &tls.Config{RootCAs: roots, ServerName: "localhost"})
		if got := asks(t, client); got != "a" {
			t.Error(got)
		}
		_ = client.CloseWrite()
		if rest, err := io.ReadAll(client); string(rest) != "." || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		plain := dial(t, address) // does not speak TLS
		_, _ = plain.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		if _, err := io.ReadAll(plain); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the proxy waits for a client that does not speak TLS")
		}
	})
}

// TestTLSOfABrokenStream has the backend fail in the middle of its answer: the client must not take
// what it got for the whole.
func TestTLSOfABrokenStream(t *testing.T) {
	eachWay(t, func(t *testing.T, c config) {
		if c.callbacks {
			t.Skip("-callbacks has no TLS: see TestOptions")
		}
		a, _ := listen(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			_, _ = io.WriteString(c, "half")
			_ = c.(*net.TCPConn).SetLinger(0) // Close resets the connection
		})
		dir := t.TempDir()
		c.backends, c.cert, c.key = a, filepath.Join(dir, "cert"), filepath.Join(dir, "key")
		roots := certificate(t, c.cert, c.key)
		_, address, _ := start(t, c)
		wire := &recorder{Conn: dial(t, address)}
		client := tls.Client(wire, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13})
		if _, err := client.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(client) // crypto/tls does not report that close_notify is missing
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q, %v", got, err)
		}
		last := 0 // the length of the last record
		for rest := wire.in.Bytes(); len(rest) >= 5; rest = rest[min(5+last, len(rest)):] {
			last = int(rest[3])<<8 | int(rest[4])
		}
		if last == 2+1+16 { // an alert, its type and the tag of TLS 1.3
			t.Errorf("%q, and then close_notify", got)
		}
	})
}

// recorder keeps what was read.
type recorder struct {
	net.Conn
	in bytes.Buffer
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.in.Write(p[:n])
	return n, err
}

// certificate makes a pair for localhost and returns what trusts it.
func certificate(t *testing.T, cert, key string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return pool
}

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) != "" {
		main()
		return
	}
	if address := os.Getenv(backendEnv); address != "" {
		serveBackend(address)
		return
	}
	os.Exit(ringtest.Main(m))
}

// backendEnv makes the test's program a backend at its address.
const backendEnv = "RINGSIDE_PROXY_BACKEND"

// serveBackend answers HTTP requests, and returns the bytes of other connections.
func serveBackend(address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			defer c.Close()
			in := bufio.NewReader(c)
			if p, err := in.Peek(4); err == nil && string(p) == "GET " {
				if _, err := http.ReadRequest(in); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
				}
				return
			}
			_, _ = io.Copy(c, in)
		}()
	}
}

// runEnv makes the test's program the proxy.
const runEnv = "RINGSIDE_PROXY"
