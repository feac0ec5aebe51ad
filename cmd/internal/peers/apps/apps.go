// SPDX-License-Identifier: MIT

// Package apps has servers of other projects' protocols, which run on any net.Listener or
// net.PacketConn, and clients of two of them. They are in builds with -tags peers only.
package apps

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
)

// These are the names of the applications. All but QUIC serve a net.Listener.
const (
	FastHTTP = "fasthttp"
	GRPC     = "grpc" // the health service of grpc-go
	Redis    = "redis"
	QUIC     = "quic" // streams of quic-go that are echoed
)

// ErrMissing is the error of a build without applications.
var ErrMissing = errors.New("built without it: needs -tags peers")

// Known reports whether this build has the applications.
func Known() bool { return len(streams) > 0 }

// streams and packets are the servers. dials are the clients.
var (
	streams = map[string]func(ln net.Listener, size int) error{}
	packets func(net.PacketConn, tls.Certificate) error
	dials   = map[string]func(context.Context, Job) (caller, error){}
)

// Serve serves an application until the listener is closed. Answers of Redis and FastHTTP have size
// bytes.
func Serve(app string, ln net.Listener, size int) error {
	serve := streams[app]
	if serve == nil {
		return fmt.Errorf("%s: %w", app, ErrMissing)
	}
	return serve(ln, size)
}

// ServePackets serves QUIC until the socket is closed.
func ServePackets(pc net.PacketConn, cert tls.Certificate) error {
	if packets == nil {
		return fmt.Errorf("%s: %w", QUIC, ErrMissing)
	}
	return packets(pc, cert)
}

// Job describes calls of a server by a client in this process, whose sockets are those of package
// net.
type Job struct {
	// App is GRPC or QUIC.
	App string
	// Addr is the server's address.
	Addr string
	// Connections is the number of connections. Calls is the number of calls that each has in flight;
	// 0 means 1.
	Connections, Calls int
	// Size is the length of the message of a QUIC stream in bytes.
	Size int
	// Warm is the time of calls before the measured window. Measure is the length of the window.
	Warm, Measure time.Duration
}

// caller is a connection. It may be used by several goroutines.
type caller interface {
	// call calls the server once and checks the answer.
	call(context.Context) error
	Close() error
}

// Drive runs the job against the server at addr. A call that fails ends it. When ctx ends, the error
// matches that of the context.
func (j Job) Drive(ctx context.Context, addr string) (res loadgen.Result, err error) {
	dial := dials[j.App]
	if dial == nil {
		return res, fmt.Errorf("%s: %w", j.App, ErrMissing)
	}
	j.Addr = addr
	var all []caller
	defer func() {
		for _, c := range all {
			_ = c.Close() // Its calls have ended.
		}
	}()
	for range j.Connections {
		c, err := dial(ctx, j)
		if err != nil {
			return res, err
		}
		all = append(all, c)
		if err := c.call(ctx); err != nil { // gRPC connects with the first call
			return res, err
		}
	}
	return j.drive(ctx, all)
}
