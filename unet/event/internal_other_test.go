// SPDX-License-Identifier: MIT

//go:build !linux

package event

import (
	"net"
	"testing"
)

// smallBuffers does nothing on other systems.
func smallBuffers() *net.ListenConfig { return nil }

// noneLeft does nothing: other systems have no rings.
func (s *Server) noneLeft(*testing.T) {}
