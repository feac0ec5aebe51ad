// SPDX-License-Identifier: MIT

package sockets

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/ringside-io/ringside/unet"
)

// readyListener is a listener for gRPC. Since gRPC 1.81 a server waits without a buffer for the
// next frame of an idle connection, but only on package net's types and on those with the method
// ReadOnReady, which the connections of this listener have. Programs may copy it.
type readyListener struct{ net.Listener }

func (l readyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if u, ok := c.(*unet.TCPConn); ok && err == nil {
		if raw, rawErr := u.SyscallConn(); rawErr == nil {
			return &readyConn{TCPConn: u, raw: raw}, nil
		}
	}
	return c, err
}

type readyConn struct {
	*unet.TCPConn
	raw syscall.RawConn
}

// ReadOnReady waits until the socket is readable, and only then takes a buffer of the pool.
func (c *readyConn) ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	var read error
	err = c.raw.Read(func(fd uintptr) bool {
		if buf == nil {
			buf = pool.Get(size)
		}
		for {
			if n, read = syscall.Read(int(fd), *buf); read != syscall.EINTR {
				break
			}
		}
		if read == syscall.EAGAIN { // an idle connection holds no buffer
			pool.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	if err == nil {
		err = read
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil && buf != nil {
		pool.Put(buf)
		buf = nil
	}
	return buf, max(n, 0), err
}

// TestGRPCIdleMemory opens idle connections to a gRPC server on unet, with and without
// readyListener, which must save most of a read buffer of 32 KiB.
func TestGRPCIdleMemory(t *testing.T) {
	plain := grpcIdleMemory(t, func(l net.Listener) net.Listener { return l })
	ready := grpcIdleMemory(t, func(l net.Listener) net.Listener { return readyListener{l} })
	t.Logf("an idle connection takes %d bytes, and %d with readyListener", plain, ready)
	if plain-ready < 24<<10 {
		t.Errorf("readyListener saves %d bytes of %d for each connection", plain-ready, plain)
	}
}

func grpcIdleMemory(t *testing.T, wrap func(net.Listener) net.Listener) int {
	const conns = 200
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(wrap(l)) }()
	defer func() { s.Stop(); <-ended }()
	used := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools hold is freed by the second
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	before := used()
	hello := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") // SETTINGS
	answer := make([]byte, 9)
	for range conns {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
		for acked := false; !acked; { // the acknowledgement of the SETTINGS
			if _, err := io.ReadFull(c, answer); err != nil {
				t.Fatal(err)
			}
			acked = answer[3] == 4 && answer[4] == 1
			if _, err := io.CopyN(io.Discard, c, int64(answer[1])<<8|int64(answer[2])); err != nil {
				t.Fatal(err)
			}
		}
	}
	return (used() - before) / conns
}
