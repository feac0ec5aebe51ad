// SPDX-License-Identifier: MIT

//go:build !linux

package server

import (
	"context"
	"errors"
	"net"
	"os"
)

// Server exists on Linux only.
type Server struct{}

// New returns errors.ErrUnsupported.
func New(Config) (*Server, error) { return nil, errors.ErrUnsupported }

// Addr returns nil.
func (*Server) Addr() net.Addr { return nil }

// Backend returns nothing.
func (*Server) Backend() (name, reason string) { return "", "" }

// ShutdownOn does nothing.
func (*Server) ShutdownOn(...os.Signal) {}

// Run returns errors.ErrUnsupported.
func (*Server) Run(context.Context) error { return errors.ErrUnsupported }

// Close does nothing.
func (*Server) Close() {}
