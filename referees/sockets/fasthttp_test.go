// SPDX-License-Identifier: MIT

package sockets

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/ringside-io/ringside/unet"
)

// Promise: unet/net-s-results
func TestFastHTTP(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		l := listen(t, s)
		server := &fasthttp.Server{
			Handler:      func(ctx *fasthttp.RequestCtx) { ctx.SetBody(ctx.PostBody()) },
			ReadTimeout:  time.Minute,
			TCPKeepalive: true,
			Logger:       quietLogger{},
		}
		done := make(chan error, 1)
		go func() { done <- server.Serve(l) }()
		client := &fasthttp.Client{MaxConnsPerHost: 64,
			Dial: func(address string) (net.Conn, error) { return s.Dial("tcp", address) }}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				for j := range 20 {
					fastExchange(t, client, l.Addr().String(), bytes.Repeat([]byte{byte(j)}, 1+i*j*200))
				}
			})
		}
		all.Wait()
		client.CloseIdleConnections()
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func fastExchange(t *testing.T, client *fasthttp.Client, address string, body []byte) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + address + "/")
	req.Header.SetMethod("POST")
	req.SetBody(body)
	if err := client.DoTimeout(req, resp, time.Minute); err != nil || !bytes.Equal(resp.Body(), body) {
		t.Errorf("%d of %d bytes, %v", len(resp.Body()), len(body), err)
	}
}

type quietLogger struct{}

func (quietLogger) Printf(string, ...any) {}
