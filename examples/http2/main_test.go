// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// TestStreams asks many times at once over one connection, then ends the server.
func TestStreams(t *testing.T) {
	pair, err := certificate("", "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- serve(ctx, l, pair) }()

	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, DialContext: (&unet.Dialer{}).DialContext,
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			resp, err := client.Get("https://" + l.Addr().String() + "/")
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "HTTP/2.0 over TLS 1.3\n" {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
	wg.Wait()
	cancel()
	select {
	case err := <-over:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server does not end")
	}
	transport.CloseIdleConnections()
}

func TestCertificateOfFiles(t *testing.T) {
	if _, err := certificate("missing.pem", ""); err == nil {
		t.Error("no error of files that are not there")
	}
}
