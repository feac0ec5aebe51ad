// SPDX-License-Identifier: MIT

package unet_test

import (
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// TestEchoAllocatesNothing counts the allocations at both ends of a connection for one
// exchange, with a deadline that moves.
func TestEchoAllocatesNothing(t *testing.T) {
	for _, mode := range modes()[1:] {
		t.Run(mode.String(), func(t *testing.T) {
			a, b := pair(t, newSystem(t, mode), "tcp")
			go func() {
				p := make([]byte, 128)
				for {
					if _, err := io.ReadFull(b, p); err != nil {
						return
					}
					_, _ = b.Write(p)
				}
			}()
			p := make([]byte, 128)
			echo := func() {
				_ = a.SetDeadline(time.Now().Add(time.Hour))
				if _, err := a.Write(p); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(a, p); err != nil {
					t.Error(err)
				}
			}
			for range 100 {
				echo()
			}
			if n := ringtest.Allocations(200, echo); n >= 1 {
				t.Errorf("%v allocations for an exchange", n)
			}
		})
	}
}

// BenchmarkEcho exchanges 128 bytes in one process.
func BenchmarkEcho(b *testing.B) {
	for _, mode := range []unet.Mode{unet.ModeNet, unet.ModePlain, unet.ModeRing} {
		b.Run(mode.String(), func(b *testing.B) {
			c, d := pair(b, newSystem(b, mode), "tcp")
			go func() { _, _ = io.Copy(struct{ io.Writer }{d}, struct{ io.Reader }{d}) }()
			p := make([]byte, 128)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = c.Write(p)
				if _, err := io.ReadFull(c, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAcceptAllocatesNoMoreThanNet counts the allocations of a connection from Accept to
// Close.
func TestAcceptAllocatesNoMoreThanNet(t *testing.T) {
	trace := sys.FDTrace
	sys.FDTrace = nil // it allocates for each of our descriptors
	defer func() { sys.FDTrace = trace }()
	var std float64
	eachMode(t, func(t *testing.T, s *unet.System) {
		l := listen(t, s, "tcp")
		accept := func() {
			fd := rawClient(t)
			if err := connectRaw(fd, l.Addr()); err != nil {
				t.Fatal(err)
			}
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
			_ = syscall.Close(fd)
		}
		accept()
		n := ringtest.Allocations(50, accept)
		if std == 0 {
			std = n
		}
		if n > std {
			t.Errorf("%v allocations, package net's %v", n, std)
		} else {
			t.Logf("%v allocations, package net's %v", n, std)
		}
	})
}

// TestDialAllocatesOneMoreThanNet counts the allocations of a call over a new connection, whose
// peer is package net's: unet makes the connection itself and nothing else.
func TestDialAllocatesOneMoreThanNet(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		var std float64
		eachMode(t, func(t *testing.T, s *unet.System) {
			l := listen(t, newSystem(t, unet.ModeNet), network)
			go func() {
				for p := make([]byte, 128); ; {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = io.ReadFull(c, p)
					_, _ = c.Write(p)
					_ = c.Close()
				}
			}()
			p := make([]byte, 128)
			call := func() {
				c, err := s.Dial(network, l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				if c, ok := c.(interface{ SetLinger(int) error }); ok {
					if err := c.SetLinger(-1); err != nil {
						t.Error(err)
					}
				}
				if _, err := c.Write(p); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(c, p); err != nil {
					t.Error(err)
				}
				_ = c.Close()
			}
			call()
			listen(t, s, "tcp") // the drivers remain
			n := ringtest.Allocations(50, call)
			if std == 0 {
				std = n
			}
			if n > std+1 {
				t.Errorf("%s: %v allocations, package net's %v", network, n, std)
			} else {
				t.Logf("%s: %v allocations, package net's %v", network, n, std)
			}
		})
	}
}
