// SPDX-License-Identifier: MIT

// Command http2 is a service on HTTP/2 and TLS over unet.
//
//	go run ./examples/http2 -addr 127.0.0.1:8443
//	curl --insecure https://127.0.0.1:8443/
//
// It shows that net/http only needs the listener: TLS, HTTP/2, streams and timeouts work
// unchanged. Without -cert and -key it makes its own certificate.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/examples/internal/options"
	"github.com/ringside-io/ringside/unet"
)

// grace is the time that requests have to finish at the end.
const grace = 800 * time.Millisecond

func main() {
	addr := flag.String("addr", "127.0.0.1:8443", "where to listen")
	cert := flag.String("cert", "", "certificate `file` in PEM (default: one made for localhost)")
	key := flag.String("key", "", "its key `file` in PEM")
	options.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := listenAndServe(ctx, *addr, *cert, *key); err != nil {
		fmt.Fprintln(os.Stderr, "http2:", err)
		os.Exit(1)
	}
}

func listenAndServe(ctx context.Context, addr, cert, key string) error {
	pair, err := certificate(cert, key)
	if err != nil {
		return err
	}
	l, err := unet.Listen("tcp", addr)
	if err != nil {
		return err
	}
	name, reason := unet.Backend()
	fmt.Fprintf(os.Stderr, "listening on https://%v, by %s %s\n", l.Addr(), name, reason)
	return serve(ctx, l, pair)
}

// serve runs until the context ends, and lets requests finish.
func serve(ctx context.Context, l net.Listener, pair tls.Certificate) error {
	server := &http.Server{
		Handler:           http.HandlerFunc(answer),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	ended := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		err := server.Shutdown(last)
		if errors.Is(err, context.DeadlineExceeded) { // slower clients are cut off
			err = server.Close()
		}
		ended <- err
	})
	if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

func answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "%s over %s\n", r.Proto, tls.VersionName(r.TLS.Version))
}

// certificate loads the pair, or makes one for this machine that is valid for a day.
func certificate(cert, key string) (tls.Certificate, error) {
	if cert != "" || key != "" {
		return tls.LoadX509KeyPair(cert, key)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}, err
}
