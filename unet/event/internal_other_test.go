// SPDX-License-Identifier: MIT

//go:build !linux

package event

import (
	"net"
	"testing"
)

// smallBuffers does nothing on other systems.
func smallBuffers() *net.ListenConfig { return nil }

// unsent is not known on other systems.
func unsent(*testing.T, net.Conn) int { return 0 }

// noneLeft does nothing: other systems have no rings.
func (s *Server) noneLeft(*testing.T) {}
