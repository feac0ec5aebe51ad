// SPDX-License-Identifier: MIT

//go:build !linux

package nginx

import (
	"errors"
	"fmt"
)

// Server exists on Linux only.
type Server struct{}

// Start returns an error: it needs Linux.
func Start(string, int) (*Server, error) { return nil, fmt.Errorf("nginx: %w", errors.ErrUnsupported) }

// Addr is not called.
func (*Server) Addr() string { return "" }

// Workers is not called.
func (*Server) Workers() []int { return nil }

// Backend is not called.
func (*Server) Backend() (name, version string) { return Name, "" }

// Enters returns -1: it is not counted.
func (*Server) Enters() int64 { return -1 }

// Close is not called.
func (*Server) Close() error { return nil }
