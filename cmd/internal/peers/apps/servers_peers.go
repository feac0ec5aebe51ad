// SPDX-License-Identifier: MIT

//go:build peers

package apps

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"

	"github.com/quic-go/quic-go"
	"github.com/tidwall/redcon"
	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func init() {
	streams[FastHTTP], streams[GRPC], streams[Redis] = serveFastHTTP, serveGRPC, serveRedis
	packets = serveQUIC
}

// serveFastHTTP answers each request with the same body.
func serveFastHTTP(ln net.Listener, size int) error {
	body := bytes.Repeat([]byte("x"), size)
	return fasthttp.Serve(ln, func(c *fasthttp.RequestCtx) {
		c.SetContentType("text/plain")
		c.SetBody(body)
	})
}

func serveGRPC(ln net.Listener, _ int) error {
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	return s.Serve(ln)
}

// serveRedis answers GET with the same value.
func serveRedis(ln net.Listener, size int) error {
	value := bytes.Repeat([]byte("x"), size)
	return redcon.Serve(ln, func(c redcon.Conn, cmd redcon.Command) {
		switch strings.ToLower(string(cmd.Args[0])) {
		case "get":
			c.WriteBulk(value)
		case "config": // redis-benchmark asks for two settings.
			c.WriteArray(0)
		default:
			c.WriteError("ERR unknown command")
		}
	}, func(redcon.Conn) bool { return true }, nil)
}

// protocol is the application's protocol in the TLS handshake of QUIC.
const protocol = "echo"

// serveQUIC echoes each stream.
func serveQUIC(pc net.PacketConn, cert tls.Certificate) error {
	t := quic.Transport{Conn: pc}
	l, err := t.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{protocol}}, nil)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept(context.Background())
		if err != nil {
			return err
		}
		go func() {
			for {
				stream, err := c.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(stream, stream) // The client detects a failure.
					_ = stream.Close()
				}()
			}
		}()
	}
}
