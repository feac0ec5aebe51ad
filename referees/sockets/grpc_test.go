// SPDX-License-Identifier: MIT

package sockets

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ringside-io/ringside/unet"
)

// echoDesc is a service with one call of each kind: unary, client streaming, server streaming, and
// bidirectional.
var echoDesc = grpc.ServiceDesc{
	ServiceName: "Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Once", Handler: func(_ any, _ context.Context,
		decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		m := new(wrapperspb.BytesValue)
		return m, decode(m)
	}}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Echo", ServerStreams: true, ClientStreams: true, Handler: grpcEcho},
		{StreamName: "Repeat", ServerStreams: true, Handler: grpcRepeat},
		{StreamName: "Join", ClientStreams: true, Handler: grpcJoin},
	},
}

func grpcEcho(_ any, stream grpc.ServerStream) error {
	return grpcReceive(stream, func(m *wrapperspb.BytesValue) error { return stream.SendMsg(m) })
}

// grpcRepeat answers a message as many times as it has bytes.
func grpcRepeat(_ any, stream grpc.ServerStream) error {
	m := new(wrapperspb.BytesValue)
	if err := stream.RecvMsg(m); err != nil {
		return err
	}
	for range m.Value {
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
	return nil
}

// grpcJoin answers all messages with one.
func grpcJoin(_ any, stream grpc.ServerStream) error {
	var all []byte
	err := grpcReceive(stream, func(m *wrapperspb.BytesValue) error { all = append(all, m.Value...); return nil })
	if err != nil {
		return err
	}
	return stream.SendMsg(wrapperspb.Bytes(all))
}

// grpcReceive calls f for each message until the end of the stream.
func grpcReceive(stream interface{ RecvMsg(any) error }, f func(m *wrapperspb.BytesValue) error) error {
	for {
		m := new(wrapperspb.BytesValue)
		if err := stream.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := f(m); err != nil {
			return err
		}
	}
}

// Promise: unet/net-s-results
func TestGRPC(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		l := listen(t, s)
		server := grpc.NewServer()
		server.RegisterService(&echoDesc, nil)
		done := make(chan error, 1)
		go func() { done <- server.Serve(l) }()
		defer func() {
			server.GracefulStop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			d := unet.Dialer{System: s}
			return d.DialContext(ctx, "tcp", address)
		}
		cc, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithContextDialer(dial),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() { grpcStream(t, cc, i) })
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				grpcOnce(t, ctx, cc, i)
				grpcOneWay(t, ctx, cc, i)
			})
		}
		all.Wait()
	})
}

// grpcStream sends messages before their answers arrive, and checks the answers.
func grpcStream(t *testing.T, cc *grpc.ClientConn, seed int) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := cc.NewStream(ctx, &echoDesc.Streams[0], "/Echo/Echo")
	if err != nil {
		t.Error(err)
		return
	}
	const messages = 100
	go func() {
		for i := range messages {
			if err := stream.SendMsg(wrapperspb.Bytes(make([]byte, (seed+1)*i*10))); err != nil {
				t.Error(err)
				return
			}
		}
		_ = stream.CloseSend()
	}()
	for i := range messages {
		m := new(wrapperspb.BytesValue)
		if err := stream.RecvMsg(m); err != nil || len(m.Value) != (seed+1)*i*10 {
			t.Errorf("message %d: %d bytes, %v", i, len(m.Value), err)
			return
		}
	}
	if err := stream.RecvMsg(new(wrapperspb.BytesValue)); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// grpcOnce makes unary calls.
func grpcOnce(t *testing.T, ctx context.Context, cc *grpc.ClientConn, seed int) {
	for i := range 20 {
		want, got := bytes.Repeat([]byte{byte(i)}, 1+seed*i*50), new(wrapperspb.BytesValue)
		if err := cc.Invoke(ctx, "/Echo/Once", wrapperspb.Bytes(want), got); err != nil || !bytes.Equal(got.Value, want) {
			t.Errorf("call %d: %d of %d bytes, %v", i, len(got.Value), len(want), err)
			return
		}
	}
}

// grpcOneWay makes a call with many answers to one message, and one with a single answer to many.
func grpcOneWay(t *testing.T, ctx context.Context, cc *grpc.ClientConn, seed int) {
	message := wrapperspb.Bytes(bytes.Repeat([]byte{byte(seed)}, 50+seed))
	repeat, err := cc.NewStream(ctx, &echoDesc.Streams[1], "/Echo/Repeat")
	if err == nil {
		err = errors.Join(repeat.SendMsg(message), repeat.CloseSend())
	}
	if err != nil {
		t.Error(err)
		return
	}
	n := 0
	err = grpcReceive(repeat, func(m *wrapperspb.BytesValue) error {
		if n++; !bytes.Equal(m.Value, message.Value) {
			return errors.New("another message")
		}
		return nil
	})
	if n != len(message.Value) || err != nil {
		t.Errorf("%d of %d messages, %v", n, len(message.Value), err)
	}

	join, err := cc.NewStream(ctx, &echoDesc.Streams[2], "/Echo/Join")
	for i := 0; err == nil && i < 20; i++ {
		err = join.SendMsg(message)
	}
	got := new(wrapperspb.BytesValue)
	if err == nil {
		err = errors.Join(join.CloseSend(), join.RecvMsg(got))
	}
	if !bytes.Equal(got.Value, bytes.Repeat(message.Value, 20)) || err != nil {
		t.Errorf("%d bytes, want %d: %v", len(got.Value), 20*len(message.Value), err)
	}
}
