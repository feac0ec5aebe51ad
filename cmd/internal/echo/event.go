// SPDX-License-Identifier: MIT

package echo

import (
	"github.com/ringside-io/ringside/unet/event"
)

// eventServer is our callback server.
type eventServer struct {
	*event.Server
	sqpoll bool
}

// startsEvent returns what starts it with the options.
func startsEvent(o event.Options) func(Setup) (Server, error) {
	return func(setup Setup) (Server, error) {
		if err := setup.plain(); err != nil {
			return nil, err
		}
		s, err := event.Listen("tcp", loopback, event.Handler{OnData: func(c *event.Conn, p []byte) { _, _ = c.Write(p) }}, o)
		if err != nil {
			return nil, err
		}
		return &eventServer{s, o.SQPoll}, nil
	}
}

func (s *eventServer) Addr() string { return s.Server.Addr().String() }

// Enters is not known with SQPOLL, where the server counts submissions, most of which enter nothing.
func (s *eventServer) Enters() int64 {
	if name, _ := s.Backend(); name != "io_uring" || s.sqpoll {
		return -1
	}
	return int64(s.Stats().Enters)
}
