// SPDX-License-Identifier: MIT

package sockets

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ringside-io/ringside/unet"
)

// TestGRPCUserTimeout makes a call between a server and a client with keep-alive. gRPC sets
// TCP_USER_TIMEOUT only on connections of package net, so UserTimeout must set it on those
// of unet. With package net the option has the same value. If gRPC begins to set the option
// on any connection with SyscallConn, the last case fails, and the guide must be updated.
// Promise: unet/usertimeout-what-grpc
func TestGRPCUserTimeout(t *testing.T) {
	const timeout = 7 * time.Second
	for _, mode := range modes {
		s, err := unet.NewSystem(unet.Options{Mode: mode})
		if err != nil {
			mayLack(t, err)
			continue
		}
		t.Run(mode.String(), func(t *testing.T) {
			ours := timeout
			if mode == unet.ModeNet {
				ours = 0 // gRPC sets it
			}
			if client, server := grpcUserTimeouts(t, s, timeout, ours); client != timeout || server != timeout {
				t.Errorf("user timeouts of the client %v, of the server %v", client, server)
			}
			if mode == unet.ModeNet {
				return
			}
			if client, server := grpcUserTimeouts(t, s, timeout, 0); client != 0 || server != 0 {
				t.Errorf("gRPC sets the user timeout now: client %v, server %v", client, server)
			}
		})
	}
}

// grpcUserTimeouts makes a call with a keep-alive timeout and returns the user
// timeouts of the two ends.
func grpcUserTimeouts(t *testing.T, s *unet.System, keep, ours time.Duration) (client, server time.Duration) {
	t.Helper()
	lc := unet.ListenConfig{System: s, UserTimeout: ours}
	inner, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &accepted{Listener: inner, conns: make(chan net.Conn, 1)}
	srv := grpc.NewServer(grpc.KeepaliveParams(keepalive.ServerParameters{Timeout: keep}))
	srv.RegisterService(&echoDesc, nil)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	defer func() {
		srv.Stop()
		<-done
	}()
	dialed := make(chan net.Conn, 1)
	cc, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Minute, Timeout: keep}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			d := unet.Dialer{System: s, UserTimeout: ours}
			c, err := d.DialContext(ctx, "tcp", address)
			if err == nil {
				dialed <- c
			}
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cc.Invoke(ctx, "/Echo/Once", wrapperspb.Bytes([]byte("x")), new(wrapperspb.BytesValue)); err != nil {
		t.Fatal(err)
	}
	return userTimeoutOf(t, <-dialed), userTimeoutOf(t, <-l.conns)
}

// accepted sends the connections of a listener to a channel.
type accepted struct {
	net.Listener
	conns chan net.Conn
}

func (l *accepted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.conns <- c
	}
	return c, err
}

func userTimeoutOf(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ms int
	var optErr error
	if err := raw.Control(func(fd uintptr) {
		ms, optErr = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}); err != nil || optErr != nil {
		t.Fatal(err, optErr)
	}
	return time.Duration(ms) * time.Millisecond
}
