// SPDX-License-Identifier: MIT

package unet_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/unet"
)

// unixMethods are the methods of net.UnixConn beyond those of net.Conn.
type unixMethods interface {
	net.Conn
	net.PacketConn
	ReadFromUnix(p []byte) (int, *net.UnixAddr, error)
	ReadMsgUnix(p, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error)
	WriteToUnix(p []byte, addr *net.UnixAddr) (int, error)
	WriteMsgUnix(p, oob []byte, addr *net.UnixAddr) (n, oobn int, err error)
}

var (
	_ unixMethods    = (*unet.UnixConn)(nil)
	_ unixMethods    = (*unet.UnixgramConn)(nil)
	_ unet.BatchConn = (*unet.UnixgramConn)(nil)
	_ unet.BatchConn = (*unet.UDPConn)(nil)
	_ net.Conn       = (*unet.UDPConn)(nil)
)

// TestDescriptorsTravel sends the end of a pipe to the peer, between data that must stay in
// order.
func TestDescriptorsTravel(t *testing.T) {
	near, far := pair(t, newSystem(t, unet.ModeNet), "unix") // whose types are package net's
	_ = far.Close()
	_, _, _, _, end := near.(unixMethods).ReadMsgUnix(make([]byte, 1), nil)
	_, wraps := end.(*net.OpError) // Go 1.27 does not
	for _, network := range []string{"unix", "unixpacket"} {
		for _, mode := range modes() {
			t.Run(fmt.Sprintf("%s/%v", network, mode), func(t *testing.T) {
				a, b := pair(t, newSystem(t, mode), network)
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				_, _ = a.Write([]byte("before"))
				n, oobn, err := a.(unixMethods).WriteMsgUnix([]byte("with"), syscall.UnixRights(int(w.Fd())), nil)
				if n != 4 || oobn == 0 || err != nil {
					t.Fatalf("send: %d, %d, %v", n, oobn, err)
				}
				_ = w.Close()
				_, _ = a.Write([]byte("behind"))
				p, oob := make([]byte, 6), make([]byte, 64)
				if _, err := io.ReadFull(b, p); err != nil || string(p) != "before" {
					t.Fatalf("%q, %v", p, err)
				}
				n, oobn, _, _, err = b.(unixMethods).ReadMsgUnix(p, oob)
				if err != nil || string(p[:n]) != "with" {
					t.Fatalf("%q, %v", p[:n], err)
				}
				writeThrough(t, oob[:oobn])
				if _, err := io.ReadFull(b, p); err != nil || string(p) != "behind" {
					t.Fatalf("%q, %v", p, err)
				}
				if data, err := io.ReadAll(r); err != nil || string(data) != "through the pipe" {
					t.Fatalf("%q, %v", data, err)
				}
				_ = a.Close()
				_, _, _, _, err = b.(unixMethods).ReadMsgUnix(p, oob)
				if _, wrapped := err.(*net.OpError); !errors.Is(err, io.EOF) || wrapped != wraps {
					t.Fatalf("at the end: %v, wrapped %v", err, wrapped)
				}
			})
		}
	}
}

// writeThrough writes to the descriptor in the control data.
func writeThrough(t *testing.T, control []byte) {
	t.Helper()
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages, %v", len(messages), err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("%d descriptors, %v", len(fds), err)
	}
	f := os.NewFile(uintptr(fds[0]), "received")
	defer f.Close()
	if _, err := f.WriteString("through the pipe"); err != nil {
		t.Fatal(err)
	}
}

// TestWriteMsgToNames passes names to WriteMsgUnix of a connection, which has a peer.
// Promise: unet/differences-package-net
func TestWriteMsgToNames(t *testing.T) {
	asNet(t, func(t *testing.T, s *unet.System) (all []string) {
		for _, network := range []string{"unix", "unixpacket"} {
			a, _ := pair(t, s, network)
			for _, name := range []string{"", "@", "\x00", "x", "@" + strings.Repeat("x", 107), strings.Repeat("x", 107), strings.Repeat("x", 108)} {
				n, oobn, err := a.(unixMethods).WriteMsgUnix([]byte("data"), nil, &net.UnixAddr{Name: name, Net: network})
				all = append(all, fmt.Sprintf("%.5q: %d, %d, %s", name, n, oobn, describe(err)))
			}
		}
		return all
	})
}

// TestAbstractNamesWithNUL sends to an abstract name that begins with a NUL, as package net allows.
// Promise: unet/differences-package-net
func TestAbstractNamesWithNUL(t *testing.T) {
	asNet(t, func(t *testing.T, s *unet.System) (all []string) {
		name := fmt.Sprintf("ringside-%s-%d", filepath.Base(t.TempDir()), os.Getpid())
		to, err := s.ListenPacket("unixgram", "@"+name)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		from := unet.NewBatchConn(listenPacket(t, s, "unixgram"))
		n, err := from.WriteBatch([]unet.Packet{{Data: []byte("data"), Name: "\x00" + name}})
		return append(all, fmt.Sprint(n, err))
	})
}
