// SPDX-License-Identifier: MIT

package sockets

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/ringside-io/ringside/unet"
)

// eachMode runs a test on every system, concurrently: the tests mostly wait.
func eachMode(t *testing.T, f func(t *testing.T, s *unet.System)) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) { t.Parallel(); f(t, system(t, mode)) })
	}
}

func listen(t *testing.T, s *unet.System) net.Listener {
	t.Helper()
	l, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// certificate returns a certificate for 127.0.0.1 and the pool that trusts it.
func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// handler serves the requests of the tests.
func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %d", r.Proto, r.ContentLength)
	})
	mux.HandleFunc("/hash", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		if _, err := io.Copy(h, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%x", h.Sum(nil))
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		for range 64 {
			_, _ = w.Write(bytes.Repeat([]byte("0123456789abcdef"), 4096))
		}
	})
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "not wanted", http.StatusExpectationFailed) // the handler does not read the body
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		_ = rw.Flush()
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = rw.WriteString(strings.ToUpper(line))
			_ = rw.Flush()
		}
	})
	mux.Handle("/ws", websocket.Handler(func(ws *websocket.Conn) {
		for {
			var message string
			if websocket.Message.Receive(ws, &message) != nil || websocket.Message.Send(ws, message) != nil {
				return
			}
		}
	}))
	return mux
}

// serve runs a server on the system and returns its address and a client that
// dials through the system.
func serve(t *testing.T, s *unet.System, secure bool) (string, *http.Client) {
	t.Helper()
	return serveAcross(t, s, s, secure)
}

// serveAcross is serve with a client on another system.
func serveAcross(t *testing.T, s, dials *unet.System, secure bool) (string, *http.Client) {
	t.Helper()
	l := listen(t, s)
	server := &http.Server{Handler: handler(), ErrorLog: log.New(io.Discard, "", 0),
		ReadTimeout: 5 * time.Minute, WriteTimeout: 5 * time.Minute}
	transport := &http.Transport{DialContext: (&unet.Dialer{System: dials}).DialContext, MaxIdleConnsPerHost: 64,
		ExpectContinueTimeout: 5 * time.Minute}
	scheme := "http://"
	if secure {
		cert, pool := certificate(t)
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
		transport.ForceAttemptHTTP2 = true
		scheme = "https://"
	}
	done := make(chan error, 1)
	go func() {
		if secure {
			done <- server.ServeTLS(l, "", "")
		} else {
			done <- server.Serve(l)
		}
	}()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return scheme + l.Addr().String(), &http.Client{Transport: transport, Timeout: 5 * time.Minute}
}

func fetch(c *http.Client, req *http.Request) (string, error) {
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// Promise: unet/net-s-results
func TestHTTP(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			eachMode(t, func(t *testing.T, s *unet.System) {
				url, client := serve(t, s, secure)
				proto := "HTTP/1.1"
				if secure {
					proto = "HTTP/2.0"
				}
				exchange(t, client, url, proto, 24)
			})
		})
	}
}

// TestHTTPAcross uses unet on only one side. The other side uses package net.
func TestHTTPAcross(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		if name, _ := s.Backend(); name == "net" {
			return // TestHTTP has unet on both sides
		}
		theirs := system(t, unet.ModeNet)
		t.Run("listener", func(t *testing.T) {
			url, client := serveAcross(t, s, theirs, true)
			exchange(t, client, url, "HTTP/2.0", 6)
		})
		t.Run("dialer", func(t *testing.T) {
			url, client := serveAcross(t, theirs, s, false)
			exchange(t, client, url, "HTTP/1.1", 6)
		})
	})
}

// exchange makes many concurrent requests: small ones, and ones with large bodies in either
// direction.
func exchange(t *testing.T, client *http.Client, url, proto string, clients int) {
	large := bytes.Repeat([]byte("request "), 1<<18)
	sum := fmt.Sprintf("%x", sha256.Sum256(large))
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range 8 {
				if got, err := fetch(client, request(t, "GET", url+"/hello", nil)); err != nil || got != proto+" 0" {
					t.Errorf("hello: %q, %v", got, err)
				}
			}
			switch i % 3 {
			case 0:
				req := request(t, "POST", url+"/hash", bytes.NewReader(large))
				if i%2 == 0 {
					req.Header.Set("Expect", "100-continue") // and the server sends it
				}
				if got, err := fetch(client, req); err != nil || got != sum {
					t.Errorf("large request: %q, %v", got, err)
				}
			case 1:
				if got, err := fetch(client, request(t, "GET", url+"/large", nil)); err != nil || len(got) != 4<<20 {
					t.Errorf("large response: %d bytes, %v", len(got), err)
				}
			case 2:
				req := request(t, "POST", url+"/refuse", bytes.NewReader(large))
				req.Header.Set("Expect", "100-continue")
				if got, err := fetch(client, req); err != nil || got != "not wanted\n" {
					t.Errorf("expectation: %q, %v", got, err)
				}
			}
		})
	}
	all.Wait()
}

// TestHTTPClientGivesUp cancels requests while the server handles them, which closes the connection
// during the handler.
func TestHTTPClientGivesUp(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		url, client := serve(t, s, false)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
				defer cancel()
				_, err := fetch(client, request(t, "GET", url+"/large", nil).WithContext(ctx))
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a request that was given up: %v", err)
				}
			})
		}
		all.Wait()
		if got, err := fetch(client, request(t, "GET", url+"/hello", nil)); err != nil {
			t.Errorf("the request after a cancelled one: %q, %v", got, err)
		}
	})
}

func TestHijack(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		url, _ := serve(t, s, false)
		c, err := s.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// The first line is sent together with the request. So the server has it in its buffer when
		// the handler hijacks the connection.
		_, _ = io.WriteString(c, "GET /hijack HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\nfirst\n")
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == "\r\n" {
				break
			}
		}
		for _, want := range []string{"FIRST\n", "SECOND\n", "THIRD\n"} {
			if line, err := r.ReadString('\n'); err != nil || line != want {
				t.Fatalf("%q, %v", line, err)
			}
			_, _ = io.WriteString(c, map[string]string{"FIRST\n": "second\n", "SECOND\n": "third\n"}[want])
		}
	})
}

func TestWebSocket(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		url, _ := serve(t, s, false)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				config, err := websocket.NewConfig("ws"+strings.TrimPrefix(url, "http")+"/ws", url)
				if err != nil {
					t.Error(err)
					return
				}
				c, err := s.Dial("tcp", config.Location.Host)
				if err != nil {
					t.Error(err)
					return
				}
				ws, err := websocket.NewClient(config, c)
				if err != nil {
					t.Error(err)
					return
				}
				defer ws.Close()
				for i := range 50 {
					want := strings.Repeat("message ", i*20+1)
					var got string
					if err := websocket.Message.Send(ws, want); err != nil {
						t.Error(err)
						return
					}
					if err := websocket.Message.Receive(ws, &got); err != nil || got != want {
						t.Errorf("%d bytes, %v", len(got), err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}
