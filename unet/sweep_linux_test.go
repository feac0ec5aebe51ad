// SPDX-License-Identifier: MIT

package unet_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sweep"
	"github.com/ringside-io/ringside/unet"
)

// sweptBytes is what goes over the connections of the sweep.
var sweptBytes = func() []byte {
	p := make([]byte, 100_000)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}()

// streams runs do with both ends of n connections. Everything is opened under
// faults too; what waits ends in time.
func streams(t *sweep.Trial, mode unet.Mode, network, address string, n int, do func(a, b net.Conn)) {
	s, err := unet.NewSystem(unet.Options{Mode: mode, Spin: -1})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Arm()
	defer t.Disarm()
	l, err := s.Listen(network, address)
	if !t.Judge("Listen", err) {
		return
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
	}()
	var all sync.WaitGroup
	defer all.Wait()
	for range n {
		d, err := s.Dial(network, l.Addr().String())
		if !t.Judge("Dial", err) {
			continue
		}
		c, err := l.Accept()
		if !t.Judge("Accept", err) {
			_ = d.Close() // accepted or not, it is lost
			t.Disarm()
			again(t, s, l)
			continue
		}
		for _, c := range []net.Conn{c, d} {
			_ = c.SetDeadline(time.Now().Add(sweep.Patience / 2))
		}
		all.Go(func() {
			do(d, c)
			for _, c := range []net.Conn{d, c} {
				_ = c.Close()
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a read after Close: %v", err)
				}
			}
		})
	}
	all.Wait()
}

// again accepts a connection after Accept has failed.
func again(t *sweep.Trial, s *unet.System, l net.Listener) {
	d, err := s.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatalf("Dial afterwards: %v", err)
	}
	defer d.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatalf("Accept afterwards: %v", err)
	}
	_ = c.Close()
}

// ends notes what an end of a connection says: where the other has failed, it may
// see that.
func ends(t *sweep.Trial, what string, err error) {
	switch c, fired := t.Choice(); {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.Errorf("%s: %v", what, err)
	case !fired || c.Passing:
		t.Judge(what, err)
	}
}

// sweptStream writes at one end what the other reads, through write and read.
func sweptStream(mode unet.Mode, network, address string, n int, write func(net.Conn, []byte) error, read func(net.Conn) ([]byte, error)) func(*sweep.Trial) {
	return func(t *sweep.Trial) {
		if address != "127.0.0.1:0" {
			_ = os.Remove(address)
		}
		streams(t, mode, network, address, n, func(a, b net.Conn) {
			var wg sync.WaitGroup
			wg.Go(func() {
				err := write(a, sweptBytes)
				ends(t, "write", err)
				_ = a.Close()
			})
			got, err := read(b)
			ends(t, "read", err)
			if err != nil {
				_ = b.Close() // who writes shall not wait for what is not read
			}
			wg.Wait()
			if c, fired := t.Choice(); !bytes.HasPrefix(sweptBytes, got) || len(got) < len(sweptBytes) && (!fired || c.Passing) {
				t.Errorf("%d bytes of %d have come, or others", len(got), len(sweptBytes))
			}
		})
	}
}

func writeAll(c net.Conn, p []byte) error { _, err := c.Write(p); return err }

func readAll(c net.Conn) ([]byte, error) { return io.ReadAll(c) }

// vectored writes by Writev.
func vectored(c net.Conn, p []byte) error {
	bufs := net.Buffers{p[:1000], p[1000:50_000], p[50_000:]}
	_, err := c.(interface {
		Writev(*net.Buffers) (int64, error)
	}).Writev(&bufs)
	return err
}

// fromFile writes by ReadFrom of a file, which is sendfile(2).
func fromFile(name string) func(net.Conn, []byte) error {
	return func(c net.Conn, _ []byte) error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = c.(io.ReaderFrom).ReadFrom(f)
		return err
	}
}

// sweptPackets sends datagrams in batches.
func sweptPackets(mode unet.Mode) func(*sweep.Trial) {
	return func(t *sweep.Trial) {
		s, err := unet.NewSystem(unet.Options{Mode: mode, Spin: -1})
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Arm()
		defer t.Disarm()
		in, err := s.ListenPacket("udp", "127.0.0.1:0")
		if !t.Judge("ListenPacket", err) {
			return
		}
		defer in.Close()
		out, err := s.Dial("udp", in.LocalAddr().String())
		if !t.Judge("Dial", err) {
			return
		}
		defer out.Close()
		const n = 6
		_ = in.SetDeadline(time.Now().Add(sweep.Patience / 2))
		send := make([]unet.Packet, n)
		for i := range send {
			send[i].Data = bytes.Repeat([]byte{byte(i + 1)}, 100*(i+1))
		}
		sent := 0
		for tries := 0; sent < n && tries < 40; tries++ {
			m, err := out.(unet.BatchConn).WriteBatch(send[sent:])
			sent += m
			if !t.Judge("WriteBatch", err) {
				t.Disarm()
			}
		}
		if sent != n {
			t.Fatalf("%d of %d datagrams were sent", sent, n)
		}
		got := make([]unet.Packet, n)
		for i := range got {
			got[i].Data = make([]byte, 1000)
		}
		for have, failures := 0, 0; have < n && failures < 40; {
			m, err := in.(unet.BatchConn).ReadBatch(got[have:])
			have += m
			if err != nil {
				failures++
				t.Judge("ReadBatch", err)
				t.Disarm()
			}
		}
		for i := range got {
			if !bytes.Equal(got[i].Data[:got[i].N], send[i].Data) {
				t.Errorf("datagram %d has %d bytes, or others", i, got[i].N)
			}
		}
	}
}

// sweptOperations are all that the sweep runs, with files in dir.
func sweptOperations(dir string) []sweep.Operation {
	// These receives do not wait, and take no provided buffers.
	recv := map[string][]sweep.Choice{"RECV": append(
		sweep.Fails(syscall.ECONNRESET, syscall.ENOMEM, syscall.ENOBUFS, syscall.EIO),
		append(sweep.Passes(syscall.EINTR, syscall.ECANCELED), sweep.Choice{Late: true, Passing: true})...)}
	const tcp = "127.0.0.1:0"
	unix, file := filepath.Join(dir, "s"), filepath.Join(dir, "file")
	messages := []string{"sendmmsg", "recvmmsg", "send", "recv", "sendmsg", "epoll_wait"}
	ring := []string{"RECV", "io_uring_enter", "io_uring_setup", "mmap"}
	ops := []sweep.Operation{
		{Name: "tcp, ring, four", Door: true, Run: sweptStream(unet.ModeRing, "tcp", tcp, 4, writeAll, readAll), Most: 4,
			Covers: "NewSystem System.Listen System.Dial TCPListener.Accept TCPListener.Close TCPConn.Read TCPConn.Write TCPConn.Close TCPConn.SetDeadline"},
		{Name: "tcp, plain", Run: sweptStream(unet.ModePlain, "tcp", tcp, 1, writeAll, readAll), Most: 4},
		{Name: "tcp, the driver's ring", Door: true, Run: sweptRing, Only: ring, Most: 3},
		{Name: "unix, ring", Door: true, Run: sweptStream(unet.ModeRing, "unix", unix, 1, writeAll, readAll), Most: 4,
			Covers: "UnixListener.Accept UnixListener.Close UnixConn.Read UnixConn.Write UnixConn.Close UnixConn.SetDeadline"},
		{Name: "Writev", Run: sweptStream(unet.ModeRing, "tcp", tcp, 1, vectored, readAll), Opened: true, Most: 3, Covers: "TCPConn.Writev"},
		{Name: "ReadFrom a file", Run: sweptStream(unet.ModeRing, "tcp", tcp, 1, fromFile(file), readAll), Opened: true, Most: 3, Covers: "TCPConn.ReadFrom"},
		{Name: "WriteTo anything", Run: spliced(unix, func(to, from net.Conn) error {
			defer to.Close()
			_, err := io.Copy(struct{ io.Writer }{to}, from) // which is WriteTo of what it reads
			return err
		}), Opened: true, Most: 2},
		{Name: "WriteTo a connection", Run: spliced(unix, func(to, from net.Conn) error {
			_, err := from.(*unet.TCPConn).WriteTo(to)
			return err
		}), Opened: true, Most: 3, Covers: "TCPConn.WriteTo"},
		{Name: "batches of datagrams", Run: sweptPackets(unet.ModeRing), Most: 4,
			Covers: "System.ListenPacket UDPConn.ReadBatch UDPConn.WriteBatch UDPConn.Close UDPConn.SetDeadline"},
		{Name: "datagrams", Run: sweptUDP, Only: messages, Covers: "UDPConn.WriteTo UDPConn.WriteToUDP UDPConn.WriteToUDPAddrPort UDPConn.WriteMsgUDP UDPConn.WriteMsgUDPAddrPort " +
			"UDPConn.ReadFrom UDPConn.ReadFromUDP UDPConn.ReadFromUDPAddrPort UDPConn.ReadMsgUDP UDPConn.ReadMsgUDPAddrPort UDPConn.Read UDPConn.Write UDPConn.Writev"},
		{Name: "datagrams, unix", Run: sweptUnixgram(dir), Only: messages, Covers: "UnixgramConn.WriteTo UnixgramConn.WriteToUnix UnixgramConn.WriteMsgUnix UnixgramConn.WriteBatch " +
			"UnixgramConn.ReadFrom UnixgramConn.ReadFromUnix UnixgramConn.ReadMsgUnix UnixgramConn.ReadBatch UnixgramConn.Read UnixgramConn.Write UnixgramConn.Writev UnixgramConn.Close UnixgramConn.SetDeadline"},
		{Name: "messages, unix", Run: sweptUnixMessages(unix), Only: messages, Covers: "UnixConn.WriteMsgUnix UnixConn.ReadMsgUnix UnixConn.ReadFrom UnixConn.ReadFromUnix UnixConn.Writev"},
		{Name: "options", Run: sweptOptions, Most: 12, Covers: "TCPConn.SetNoDelay TCPConn.SetKeepAlive TCPConn.SetKeepAlivePeriod TCPConn.SetKeepAliveConfig TCPConn.SetLinger " +
			"TCPConn.SetReadBuffer TCPConn.SetWriteBuffer TCPConn.File TCPConn.SyscallConn TCPConn.CloseRead TCPConn.CloseWrite"},
		{Name: "listening", Run: sweptListening(dir), Most: 3, Covers: "ListenConfig.Listen ListenConfig.ListenPacket Dialer.DialContext TCPListener.AcceptTCP TCPListener.SetDeadline " +
			"UnixListener.AcceptUnix UnixListener.SetDeadline UnixListener.File UDPConn.File UDPConn.SetReadBuffer UDPConn.SetWriteBuffer"},
	}
	whole := maps.Clone(recv) // a datagram is sent whole or not at all
	whole["send"] = append(sweep.Fails(syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNREFUSED), sweep.Passes(syscall.EINTR)...)
	for i := range ops {
		ops[i].Instead = recv
		if strings.HasPrefix(ops[i].Name, "datagrams") {
			ops[i].Instead = whole
		}
	}
	return ops
}

// TestFaultSweep has each answer of the kernel's fail in turn.
func TestFaultSweep(t *testing.T) {
	sweep.Need(t)
	newSystem(t, unet.ModeRing)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), sweptBytes, 0o600); err != nil {
		t.Fatal(err)
	}
	sweep.Check(t, sweptOperations(dir))
}

// TestFaultSweepSimulated does that with rings that are simulated.
func TestFaultSweepSimulated(t *testing.T) {
	newSystem(t, unet.ModeRing)
	sweep.CheckSimulated(t, sweptOperations(t.TempDir()))
}

// TestFaultSweepCoversAll compares the sweep with what the package exports.
func TestFaultSweepCoversAll(t *testing.T) {
	sweep.API(t, sweptOperations(""), sweep.Exempt{
		"is the method of the package's own System":                    "Listen ListenPacket Dial Backend",
		"is Dial with a deadline of package net's":                     "DialTimeout",
		"is DialContext without a context":                             "Dialer.Dial",
		"sets a field":                                                 "UnixListener.SetUnlinkOnClose",
		"tells what is known and asks nothing of the kernel":           "System.Backend Mode.String TCPConn.LocalAddr TCPConn.RemoteAddr UDPConn.LocalAddr UDPConn.RemoteAddr UnixConn.LocalAddr UnixConn.RemoteAddr UnixgramConn.LocalAddr UnixgramConn.RemoteAddr TCPListener.Addr UnixListener.Addr",
		"is one half of SetDeadline, which is a timer":                 "TCPConn.SetReadDeadline TCPConn.SetWriteDeadline UDPConn.SetReadDeadline UDPConn.SetWriteDeadline UnixConn.SetReadDeadline UnixConn.SetWriteDeadline UnixgramConn.SetReadDeadline UnixgramConn.SetWriteDeadline",
		"is one call of getsockopt that tells nothing where it fails":  "TCPConn.MultipathTCP",
		"reads one datagram after the other through what it was given": "NewBatchConn",
		"is TCPConn's, the same function of what they embed": "UDPConn.SyscallConn UnixConn.CloseRead UnixConn.CloseWrite UnixConn.File UnixConn.SetReadBuffer UnixConn.SetWriteBuffer UnixConn.SyscallConn " +
			"UnixgramConn.CloseRead UnixgramConn.CloseWrite UnixgramConn.File UnixgramConn.SetReadBuffer UnixgramConn.SetWriteBuffer UnixgramConn.SyscallConn",
		"is UnixListener's and TCPConn's, the same functions": "TCPListener.File TCPListener.SyscallConn UnixListener.SyscallConn",
		"fails, as a connection has its peer":                 "UnixConn.WriteTo UnixConn.WriteToUnix",
	})
}
