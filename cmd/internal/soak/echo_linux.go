// SPDX-License-Identifier: MIT

package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/testing/stress"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
)

const (
	// echoClients is the number of concurrent connections of each echo server.
	echoClients = 8
	// mostEcho is the maximum number of bytes that a client sends before it reads.
	mostEcho = 48 << 10
)

// echoServers returns servers of package event on rings and one on epoll, with their clients.
func (r *round) echoServers() []func() {
	modes := []event.Mode{event.ModeAuto}
	if r.noRings == nil {
		modes = append(modes, event.ModeEpoll)
	}
	var parts []func()
	for i, mode := range modes {
		parts = append(parts, func() { r.echo(mode, i) })
	}
	return parts
}

// echo serves until the round is over and then shuts the server down.
func (r *round) echo(mode event.Mode, number int) {
	network, address := "tcp", "127.0.0.1:0"
	if path := r.path("echo-%d", number); (r.number+number)%4 == 0 && len(path) <= longestName {
		network, address = "unix", path
	}
	server, err := event.Listen(network, address, r.echoHandler(), event.Options{Mode: mode})
	if err != nil {
		r.problem(Sockets, "listen: %v", err)
		return
	}
	var clients sync.WaitGroup
	for i := range echoClients {
		clients.Go(func() {
			random := r.random(100*number + i)
			for r.more.Err() == nil {
				r.judge(Sockets, "echo", r.echoClient(random, server.Addr()))
			}
		})
	}
	clients.Wait()
	ctx, stop := context.WithTimeout(r.cut, patience)
	defer stop()
	r.judge(Sockets, "shutdown of the echo server", server.Shutdown(ctx))
}

// judge notes an error.
func (r *round) judge(row, what string, err error) {
	if err != nil {
		r.problem(row, "%s: %v", what, err)
	}
}

// echoHandler echoes.
func (r *round) echoHandler() event.Handler {
	return event.Handler{
		OnData: func(c *event.Conn, p []byte) {
			if r.o.spoil != nil {
				r.o.spoil(Sockets, p)
			}
			if _, err := c.Write(p); err != nil {
				r.problem(Sockets, "write of the echo server: %v", err)
			}
		},
		OnClose: func(_ *event.Conn, err error) {
			if err != nil && err != io.EOF {
				r.problem(Sockets, "a connection of the echo server ended with %v", err)
			}
		},
	}
}

// dial connects with package unet. All calls on the connection time out after patience, and at once
// when the run is cut off.
func (r *round) dial(addr net.Addr) (net.Conn, func(), error) {
	c, err := unet.Dial(addr.Network(), addr.String())
	if err != nil {
		return nil, nil, err
	}
	_ = c.SetDeadline(time.Now().Add(2 * patience))
	uncut := context.AfterFunc(r.cut, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return c, func() { uncut() }, nil
}

// echoClient runs one connection. It sends numbered bytes and reads them back in pieces of any
// size. At the end one side closes first.
func (r *round) echoClient(random *rand.Rand, addr net.Addr) (err error) {
	c, uncut, err := r.dial(addr)
	if err != nil {
		return err
	}
	defer uncut()
	defer func() { err = errors.Join(err, c.Close()) }()
	next := random.Uint64() >> 1
	sent, got := make([]byte, mostEcho), make([]byte, mostEcho)
	for range 1 + random.IntN(200) {
		if r.more.Err() != nil {
			break
		}
		n := 1 + random.IntN(mostEcho>>random.IntN(10))
		if err := r.roundTrip(random, c, sent[:n], got[:n], next); err != nil {
			return err
		}
		next += uint64(n)
	}
	if random.IntN(2) == 0 {
		return nil
	}
	return halfClose(c)
}

// roundTrip sends bytes in up to four writes and reads all of them back.
func (r *round) roundTrip(random *rand.Rand, c net.Conn, sent, got []byte, first uint64) error {
	r.inFlight.Add(1)
	defer r.inFlight.Add(-1)
	stress.Bytes(sent, first)
	for rest := sent; len(rest) > 0; {
		n := max(min(len(rest), random.IntN(len(sent))), (len(sent)+3)/4)
		n = min(n, len(rest))
		if _, err := c.Write(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if n, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("%d of %d bytes came back: %w", n, len(got), err)
	}
	if err := same(got, sent, first); err != nil {
		return err
	}
	r.done(Sockets, 1)
	return nil
}

// same returns an error that names the first byte that differs.
func same(got, want []byte, first uint64) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("wrong byte: number %d is %#x instead of %#x", first+uint64(i), got[i], want[i])
		}
	}
	return fmt.Errorf("%d bytes instead of %d", len(got), len(want))
}

// halfClose closes the sending side and expects the end of the stream.
func halfClose(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("%T has no CloseWrite", c)
	}
	if err := half.CloseWrite(); err != nil {
		return err
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return fmt.Errorf("in the place of the end: %d bytes, %v", n, err)
	}
	return nil
}
