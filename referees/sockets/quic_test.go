// SPDX-License-Identifier: MIT

package sockets

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/ringside-io/ringside/unet"
)

// quicPair returns a quic-go connection with a UDP socket of the system at each end. The other end
// echoes each stream.
func quicPair(t testing.TB, s *unet.System) *quic.Conn {
	t.Helper()
	cert, roots := certificate(t)
	transport := func() *quic.Transport {
		c, err := s.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tr := &quic.Transport{Conn: c}
		t.Cleanup(func() { _, _ = tr.Close(), c.Close() })
		return tr
	}
	server, client := transport(), transport()
	l, err := server.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"echo"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { l.Close() })
	all.Go(func() {
		c, err := l.Accept(context.Background())
		if err != nil {
			return
		}
		for {
			stream, err := c.AcceptStream(context.Background())
			if err != nil {
				return
			}
			all.Go(func() {
				_, _ = io.Copy(stream, stream)
				_ = stream.Close()
			})
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, l.Addr().(*net.UDPAddr), &tls.Config{RootCAs: roots, NextProtos: []string{"echo"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseWithError(0, "") })
	return c
}

// quicEcho sends data on a stream of its own and compares what comes back.
func quicEcho(t testing.TB, c *quic.Conn, data []byte) {
	stream, err := c.OpenStreamSync(context.Background())
	if err != nil {
		t.Error(err)
		return
	}
	_ = stream.SetDeadline(time.Now().Add(time.Minute))
	sent := make(chan error, 1)
	go func() {
		_, err := stream.Write(data)
		_ = stream.Close()
		sent <- err
	}()
	got, err := io.ReadAll(stream)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d of %d bytes, or wrong data, %v", len(got), len(data), err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestQUIC runs streams of quic-go over sockets of unet. quic-go sends segments, sets
// socket options and reads batches with x/net.
// Promise: unet/quic-go-runs
func TestQUIC(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		c := quicPair(t, s)
		data := make([]byte, 1<<20)
		_, _ = rand.Read(data)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() { quicEcho(t, c, data[:len(data)>>i]) })
		}
		all.Wait()
	})
}
