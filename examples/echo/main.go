// SPDX-License-Identifier: MIT

// Command echo is an echo server with a goroutine for each connection.
//
//	go run ./examples/echo -addr 127.0.0.1:7777
//	nc 127.0.0.1 7777
//
// It shows that one changed word moves a server from package net to unet, and an orderly
// end: the server stops accepting and closes the open connections after grace.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/examples/internal/accept"
	"github.com/ringside-io/ringside/examples/internal/options"
	"github.com/ringside-io/ringside/unet"
)

// grace is the time that connections have to finish at the end.
const grace = 800 * time.Millisecond

func main() {
	addr := flag.String("addr", "127.0.0.1:7777", "where to listen")
	options.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := unet.Listen("tcp", *addr) // was: net.Listen
	if err == nil {
		name, reason := unet.Backend()
		fmt.Fprintf(os.Stderr, "listening on %v, by %s %s\n", l.Addr(), name, reason)
		err = serve(ctx, l)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

// serve runs until the context ends, and returns when all connections are closed.
func serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = c.Close()
			}
			return nil
		case accept.Retry(ctx, err):
			continue
		case err != nil:
			return err
		}
		wg.Go(func() { echo(ctx, c) })
	}
}

// echo copies until the peer ends its direction. When the server ends, data that the peer
// had sent by then are still sent back.
func echo(ctx context.Context, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now().Add(grace)) })()
	_, _ = io.Copy(c, c)
}
