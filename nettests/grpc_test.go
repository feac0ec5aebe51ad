// SPDX-License-Identifier: MIT

package nettests

import (
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

// echoDesc is a service with one stream in both directions.
var echoDesc = grpc.ServiceDesc{
	ServiceName: "Echo",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Echo", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error {
			for {
				m := new(wrapperspb.BytesValue)
				if err := stream.RecvMsg(m); err != nil {
					if errors.Is(err, io.EOF) {
						return nil
					}
					return err
				}
				if err := stream.SendMsg(m); err != nil {
					return err
				}
			}
		}}},
}

func TestGRPCStreams(t *testing.T) {
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
		}
		all.Wait()
	})
}

// grpcStream sends messages ahead of their answers, and checks those.
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
