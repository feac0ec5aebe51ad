// SPDX-License-Identifier: MIT

//go:build peers && (linux || darwin) && !386

package echo

import (
	"context"
	"fmt"
	"time"

	"github.com/cloudwego/netpoll"
)

func init() { starters[NameNetpoll] = startNetpoll }

// netpollServer is a server on cloudwego/netpoll.
type netpollServer struct {
	ln   netpoll.Listener
	loop netpoll.EventLoop
}

func startNetpoll(setup Setup) (Server, error) {
	if err := setup.plain(); err != nil {
		return nil, err
	}
	if setup.Give > 0 {
		return nil, fmt.Errorf("engine %s only echoes", setup.Engine)
	}
	ln, err := netpoll.CreateListener(setup.at())
	if err != nil {
		return nil, err
	}
	loop, err := netpoll.NewEventLoop(echoNetpoll)
	if err != nil {
		return nil, err
	}
	go func() { _ = loop.Serve(ln) }()
	return &netpollServer{ln, loop}, nil
}

func echoNetpoll(_ context.Context, c netpoll.Connection) error {
	r, w := c.Reader(), c.Writer()
	p, err := r.Next(r.Len())
	if err != nil {
		return err
	}
	if _, err := w.WriteBinary(p); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return r.Release()
}

func (s *netpollServer) Addr() string                   { return s.ln.Addr().String() }
func (s *netpollServer) Backend() (name, reason string) { return "epoll", "" }
func (s *netpollServer) Enters() int64                  { return -1 }

func (s *netpollServer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.loop.Shutdown(ctx)
}
