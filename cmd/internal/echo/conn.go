// SPDX-License-Identifier: MIT

package echo

import (
	"net"

	"github.com/ringside-io/ringside/unet"
)

// connServer is our net.Listener, used as package net's.
type connServer struct{ ln net.Listener }

func startConn() (Server, error) {
	ln, err := unet.Listen("tcp", loopback)
	if err != nil {
		return nil, err
	}
	go serve(ln)
	return &connServer{ln}, nil
}

func (s *connServer) Addr() string                   { return s.ln.Addr().String() }
func (s *connServer) Backend() (name, reason string) { return unet.Backend() }
func (s *connServer) Enters() int64                  { return -1 }
func (s *connServer) Close() error                   { return s.ln.Close() }
