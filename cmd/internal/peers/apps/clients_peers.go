// SPDX-License-Identifier: MIT

//go:build peers

package apps

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/quic-go/quic-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func init() { dials[GRPC], dials[QUIC] = dialGRPC, dialQUIC }

// grpcConn is a connection to a health service.
type grpcConn struct {
	*grpc.ClientConn
	client grpc_health_v1.HealthClient
}

func dialGRPC(_ context.Context, j Job) (caller, error) {
	c, err := grpc.NewClient("passthrough:///"+j.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &grpcConn{c, grpc_health_v1.NewHealthClient(c)}, nil
}

func (c *grpcConn) call(ctx context.Context) error {
	answer, err := c.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	switch status.Code(err) { // which may come before ctx has ended
	case codes.OK:
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Canceled:
		return context.Canceled
	default:
		return err
	}
	if answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("the server is %v", answer.GetStatus())
	}
	return nil
}

// quicConn is a connection to a server that echoes streams.
type quicConn struct {
	*quic.Conn
	transport *quic.Transport
	message   []byte
}

func dialQUIC(ctx context.Context, j Job) (_ caller, err error) {
	to, err := net.ResolveUDPAddr("udp", j.Addr)
	if err != nil {
		return nil, err
	}
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &quic.Transport{Conn: pc}
	// The certificate is made for the run and never leaves the server's process.
	c, err := t.Dial(ctx, to, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}, nil)
	if err != nil {
		return nil, errors.Join(err, t.Close(), pc.Close())
	}
	return &quicConn{c, t, bytes.Repeat([]byte("0123456789abcdef"), (j.Size+15)/16)[:j.Size]}, nil
}

func (c *quicConn) call(ctx context.Context) error {
	stream, err := c.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		stream.CancelRead(0)
		stream.CancelWrite(0)
	})()
	sent := make(chan error, 1)
	go func() {
		_, err := stream.Write(c.message)
		sent <- errors.Join(err, stream.Close())
	}()
	got := make([]byte, len(c.message))
	_, err = io.ReadFull(stream, got)
	if err != nil {
		stream.CancelWrite(0)
	}
	if err = errors.Join(err, <-sent, ctx.Err()); err != nil {
		return err
	}
	if !bytes.Equal(got, c.message) {
		return errors.New("the echo differs from the message")
	}
	if _, err := stream.Read(got[:1]); err != io.EOF {
		return fmt.Errorf("after the echo: %w", err)
	}
	return nil
}

func (c *quicConn) Close() error {
	return errors.Join(c.CloseWithError(0, ""), c.transport.Close(), c.transport.Conn.Close())
}
