// SPDX-License-Identifier: MIT

package fileserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet/ktls"
)

// running is a server whose limits a test may change before it starts.
func running(t *testing.T, dir string, change func(*Server), certificates ...tls.Certificate) (s *Server, addr string, served chan error) {
	t.Helper()
	h, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = NewServer(h, quiet)
	change(s)
	served = make(chan error, 1)
	go func() { served <- s.Serve(ln, certificates...) }()
	t.Cleanup(func() { s.http.Close() })
	return s, ln.Addr().String(), served
}

// TestSlowClient sends a header without end, and a body that never comes.
func TestSlowClient(t *testing.T) {
	_, addr, _ := running(t, tree(t, nil), func(s *Server) {
		s.http.ReadHeaderTimeout, s.http.ReadTimeout = 50*time.Millisecond, 100*time.Millisecond
	})
	for _, begin := range []string{"GET / HT", "GET / HTTP/1.1\r\nHost: h\r\nX: ", "", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, begin)
		if _, err := io.ReadAll(c); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Errorf("%q keeps the connection", begin)
		}
		c.Close()
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// TestClientThatTakesNothing checks that the server gives up a client that reads nothing.
func TestClientThatTakesNothing(t *testing.T) {
	s, addr, served := running(t, tree(t, map[string]string{"big.jpg": strings.Repeat("x", 64<<20)}), func(*Server) {})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /big.jpg HTTP/1.1\r\nHost: h\r\n\r\n")
	if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(late); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestShutdownWaits checks that a download completes during shutdown.
func TestShutdownWaits(t *testing.T) {
	const size = 32 << 20
	s, addr, served := running(t, tree(t, map[string]string{"big.jpg": strings.Repeat("x", size)}), func(*Server) {})
	res, err := http.Get("http://" + addr + "/big.jpg")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the server still accepts")
	}
}

// TestRefusals sends requests that net/http would not send, as in request smuggling.
func TestRefusals(t *testing.T) {
	addr := start(t, tree(t, map[string]string{"f.txt": "text"}), Options{})
	for request, want := range map[string]string{
		"GET /f.txt HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n": "431",
		"GET /" + strings.Repeat("x", 2*maxHeader) + " HTTP/1.1\r\nHost: h\r\n\r\n":             "431",
		"GET /f.txt HTTP/1.1\r\n\r\n":                                                                                  "400",
		"GET /f.txt HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                                                            "400",
		"GET /f.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx":                           "400",
		"GET /f.txt HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n":                                                 "400",
		"GET /f.txt HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx":                                                "400",
		"GET /f.txt HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n":                                        "501",
		"GET /f.txt HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n":                               "400",
		"GET /f.txt HTTP/1.1\r\nHost: h\r\nX: a\r\n b\x00\r\n\r\n":                                                     "400",
		"GET /f.txt HTTP/9.9\r\nHost: h\r\n\r\n":                                                                       "505",
		"GET f.txt HTTP/1.1\r\nHost: h\r\n\r\n":                                                                        "400",
		"G T /f.txt HTTP/1.1\r\nHost: h\r\n\r\n":                                                                       "400",
		"GET /f.txt\x7f HTTP/1.1\r\nHost: h\r\n\r\n":                                                                   "400",
		"CONNECT /f.txt HTTP/1.1\r\nHost: h\r\n\r\n":                                                                   "405",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n":                                                                        "200",
		"PUT /f.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx":                                                 "405",
		"GET http://h/f.txt HTTP/1.1\r\nHost: h\r\n\r\n":                                                               "200",
		"GET /f.txt HTTP/1.0\r\n\r\n":                                                                                  "200",
		"GET /f.txt HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\n\r\n": "200",
	} {
		got := raw(t, addr, request)
		if len(got) < 12 || got[9:12] != want {
			t.Errorf("%.80q: got %.60q, want %s", request, got, want)
		}
	}
	// A body must not be parsed as another request.
	got := raw(t, addr, "GET /f.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 35\r\n\r\nGET /nothing HTTP/1.1\r\nHost: h\r\n\r\n")
	if n := strings.Count(got, "HTTP/1."); n != 1 {
		t.Errorf("got %d responses: %q", n, got)
	}
}

// testCertificate returns a certificate for 127.0.0.1, and a pool that has it.
func testCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{{127, 0, 0, 1}}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestTLS uses both versions of HTTP.
func TestTLS(t *testing.T) {
	files := map[string]string{"small.txt": "text", "big.jpg": strings.Repeat("0123456789", 300_000)}
	certificate, pool := testCertificate(t)
	s, addr, _ := running(t, tree(t, files), func(*Server) {}, certificate)
	for _, two := range []bool{false, true} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: two}
		defer tr.CloseIdleConnections()
		for range 2 {
			for name, want := range files {
				res, err := (&http.Client{Transport: tr}).Get("https://" + addr + "/" + name)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || string(b) != want || (res.ProtoMajor == 2) != two {
					t.Errorf("%s by %s: %d bytes, %v", name, res.Proto, len(b), err)
				}
			}
		}
	}
	idle(t, s)
}

// TestKTLS serves with the kernel's TLS, and where it is absent with crypto/tls.
func TestKTLS(t *testing.T) {
	files := map[string]string{"small.txt": "text", "big.jpg": strings.Repeat("0123456789", 300_000)}
	certificate, pool := testCertificate(t)
	h, err := Open(tree(t, files), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	name, reason := ktls.Backend()
	t.Logf("TLS by %s %s", name, reason)
	for _, required := range []bool{false, true} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(h, quiet)
		served := make(chan error, 1)
		go func() { served <- s.ServeKTLS(ln, required, certificate) }()
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
		for range 2 {
			for path, want := range files {
				res, err := (&http.Client{Transport: tr}).Get("https://" + ln.Addr().String() + "/" + path)
				if required && name != "kernel" {
					if err == nil {
						t.Error("served without the kernel")
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || string(b) != want || res.ProtoMajor != 1 {
					t.Errorf("%s by %s: %d bytes, %v", path, res.Proto, len(b), err)
				}
			}
		}
		tr.CloseIdleConnections()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// TestAccessLog requests names that could break a line of the access log.
func TestAccessLog(t *testing.T) {
	h, err := Open(tree(t, map[string]string{"f.jpg": "text", "big.jpg": strings.Repeat("x", 200_000)}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lines := make(chan string, 1)
	addr := serve(t, AccessLog(h, writerFunc(func(p []byte) (int, error) { lines <- string(p); return len(p), nil })))
	for path, want := range map[string]string{
		"/f.jpg": `"GET /f.jpg HTTP/1.1" 200 4 "-" "a\"b"`, "/big.jpg": `"GET /big.jpg HTTP/1.1" 200 200000 "-" "a\"b"`, "/x%0ay": `"GET /x%0ay HTTP/1.1" 404 19 "-" "a\"b"`,
	} {
		ask(t, addr, "GET", path, http.Header{"User-Agent": {"a\"b"}})
		if got := <-lines; !strings.HasPrefix(got, "127.0.0.1 - - [") || !strings.HasSuffix(got, "] "+want+"\n") {
			t.Errorf("%q", got)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
