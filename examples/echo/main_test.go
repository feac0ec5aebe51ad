// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/examples/internal/accept/accepttest"
	"github.com/ringside-io/ringside/unet"
)

func TestEcho(t *testing.T) {
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- serve(ctx, accepttest.Full(l)) }()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { oneConnection(t, l.Addr().String(), i*10_007) })
	}
	wg.Wait()
	// One that stays: the server ends all the same.
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-over:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server does not end")
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is still there")
	}
}

func oneConnection(t *testing.T, addr string, size int) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	sent := bytes.Repeat([]byte{byte(size)}, size)
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%v: %d of %d bytes came back", err, len(got), size)
	}
}
