// SPDX-License-Identifier: MIT

package unet_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// numberedBytes returns n bytes whose values show their position.
func numberedBytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i ^ i>>8*13)
	}
	return p
}

// datagrams receives until n bytes have arrived and returns the datagrams. receive stores
// one datagram or several joined ones in p and returns their number of bytes and their
// size.
func datagrams(t *testing.T, n int, receive func(p []byte) (int, int, error)) (all [][]byte) {
	t.Helper()
	for n > 0 {
		p := make([]byte, 1<<16)
		m, size, err := receive(p)
		if err != nil {
			t.Fatalf("%v, %d bytes are missing", err, n)
		}
		if size == 0 {
			size = m
		}
		n -= m
		for p = p[:m]; len(p) > 0; p = p[min(size, len(p)):] {
			all = append(all, p[:min(size, len(p))])
		}
	}
	return all
}

// TestSegments sends datagrams as segments and receives them, joined and not, with each
// function that can.
// Promise: unet/datagrams-sent-received
func TestSegments(t *testing.T) {
	data := numberedBytes(20_500)
	const size = 1000
	send := map[string]func(c *unet.UDPConn, to netip.AddrPort) error{
		"WriteBatch": func(c *unet.UDPConn, to netip.AddrPort) error {
			_, err := c.WriteBatch([]unet.Packet{{Data: data[:10_000], Segment: size, Addr: to},
				{Data: data[10_000:11_000], Addr: to}, {Data: data[11_000:12_000], Segment: size, Addr: to},
				{Data: data[12_000:], Segment: size, Addr: to}})
			return err
		},
		"NewBatchConn": func(c *unet.UDPConn, to netip.AddrPort) error {
			_, err := unet.NewBatchConn(onlyPacketConn{c}).WriteBatch([]unet.Packet{{Data: data, Segment: size, Addr: to}})
			return err
		},
		"WriteMsgUDP": func(c *unet.UDPConn, to netip.AddrPort) error {
			n, _, err := c.WriteMsgUDPAddrPort(data, unet.SegmentControl(size), to)
			if err == nil && n != len(data) {
				t.Errorf("WriteMsgUDP: %d", n)
			}
			return err
		},
	}
	receive := map[string]func(c *unet.UDPConn) func(p []byte) (int, int, error){
		"ReadBatch": func(c *unet.UDPConn) func(p []byte) (int, int, error) {
			return func(p []byte) (int, int, error) {
				ps := []unet.Packet{{Data: p, Segment: 77}}
				_, err := c.ReadBatch(ps)
				return ps[0].N, ps[0].Segment, err
			}
		},
		"ReadMsgUDP": func(c *unet.UDPConn) func(p []byte) (int, int, error) {
			return func(p []byte) (int, int, error) {
				oob := make([]byte, 128)
				n, oobn, _, _, err := c.ReadMsgUDPAddrPort(p, oob)
				return n, unet.SegmentSize(oob[:oobn]), err
			}
		},
	}
	for _, mode := range []unet.Mode{unet.ModePlain, unet.ModeRing} {
		s := newSystem(t, mode)
		for _, network := range []string{"udp4", "udp6"} {
			for sending, send := range send {
				for receiving, receive := range receive {
					for _, gro := range []bool{true, false} {
						in, out := listenPacket(t, s, network).(*unet.UDPConn), listenPacket(t, s, network).(*unet.UDPConn)
						_ = in.SetReadBuffer(1 << 20)
						if err := in.SetGRO(gro); err != nil {
							t.Fatal(err)
						}
						_ = in.SetReadDeadline(time.Now().Add(patience))
						if err := send(out, in.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
							t.Fatalf("%s: %v", sending, err)
						}
						got := datagrams(t, len(data), receive(in))
						for i, d := range got {
							if want := data[i*size : min(len(data), (i+1)*size)]; !bytes.Equal(d, want) {
								t.Fatalf("%v %s, %s, %s, joined %v: datagram %d of %d has %d bytes, or wrong data", mode, network, sending, receiving, gro, i, len(got), len(d))
							}
						}
						_, _ = in.Close(), out.Close()
					}
				}
			}
		}
	}
}

// onlyPacketConn hides the methods of a connection that net.PacketConn lacks.
type onlyPacketConn struct{ net.PacketConn }

// TestSegmentsAreJoined checks that the datagrams of one packet are received as one.
// Promise: unet/datagrams-sent-received
func TestSegmentsAreJoined(t *testing.T) {
	s := newSystem(t, unet.ModePlain)
	in, out := listenPacket(t, s, "udp4").(*unet.UDPConn), listenPacket(t, s, "udp4").(*unet.UDPConn)
	if err := in.SetGRO(true); err != nil {
		t.Fatal(err)
	}
	data := numberedBytes(9_500)
	exchange := func(what string) {
		t.Helper()
		if n, err := out.WriteBatch([]unet.Packet{{Data: data, Segment: 1000, Addr: in.LocalAddr().(*net.UDPAddr).AddrPort()}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		got := []unet.Packet{{Data: make([]byte, 1<<16)}}
		if n, err := in.ReadBatch(got); n != 1 || err != nil || got[0].N != len(data) || got[0].Segment != 1000 {
			t.Errorf("%s: %d packets, %d bytes, segments of %d, %v", what, n, got[0].N, got[0].Segment, err)
		}
	}
	exchange("no other control data")
	raw, err := in.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		for _, option := range []int{syscall.SO_TIMESTAMPNS, syscall.SO_RXQ_OVFL} {
			err = errors.Join(err, syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, 1))
		}
		err = errors.Join(err, syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_PKTINFO, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	exchange("with other control data")
}

// TestSegmentsJoinedWhileReading turns GRO on while a ReadBatch may already wait.
func TestSegmentsJoinedWhileReading(t *testing.T) {
	s := newSystem(t, unet.ModePlain)
	for range 50 {
		in, out := listenPacket(t, s, "udp4").(*unet.UDPConn), listenPacket(t, s, "udp4").(*unet.UDPConn)
		got := []unet.Packet{{Data: make([]byte, 1<<16)}}
		read := make(chan error)
		go func() {
			_, err := in.ReadBatch(got)
			read <- err
		}()
		runtime.Gosched()
		if err := in.SetGRO(true); err != nil {
			t.Fatal(err)
		}
		data := numberedBytes(9_500)
		if n, err := out.WriteBatch([]unet.Packet{{Data: data, Segment: 1000, Addr: in.LocalAddr().(*net.UDPAddr).AddrPort()}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if err := <-read; err != nil || got[0].N != len(data) || got[0].Segment != 1000 {
			t.Fatalf("%d bytes, segments of %d, %v", got[0].N, got[0].Segment, err)
		}
		_, _ = in.Close(), out.Close()
	}
}

// TestSegmentsOfUnix checks that segments are refused: the kernel would send one datagram.
// Promise: unet/datagrams-sent-received
func TestSegmentsOfUnix(t *testing.T) {
	s := newSystem(t, unet.ModePlain)
	c := listenPacket(t, s, "unixgram").(*unet.UnixgramConn)
	n, err := c.WriteBatch([]unet.Packet{{Data: make([]byte, 100), Name: c.LocalAddr().String()}, {Data: make([]byte, 100), Segment: 10, Name: c.LocalAddr().String()}})
	if n != 1 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
}

// TestBatchesThatCannotBeJoined sends batches of packets that the kernel cannot take as
// segments, or not together: each packet arrives as it was written.
// Promise: unet/datagrams-sent-received
func TestBatchesThatCannotBeJoined(t *testing.T) {
	sizes := map[string][]int{
		"one size":              {100, 100, 100, 100},
		"the last is shorter":   {100, 100, 30, 100, 100},
		"growing":               {1, 2, 3, 4},
		"empty ones":            {0, 0, 5, 0, 5, 5, 0},
		"larger than a packet":  {3000, 3000, 3000},
		"more than one message": make([]int, 100),
		"more than fits":        make([]int, 60),
	}
	for i := range sizes["more than one message"] {
		sizes["more than one message"][i] = 10
	}
	for i := range sizes["more than fits"] {
		sizes["more than fits"][i] = 1400
	}
	eachMode(t, func(t *testing.T, s *unet.System) {
		for _, connected := range []bool{true, false} {
			for what, sizes := range sizes {
				c := listenPacket(t, s, "udp4")
				_ = c.(interface{ SetReadBuffer(int) error }).SetReadBuffer(1 << 20)
				_ = c.SetReadDeadline(time.Now().Add(patience))
				to := c.LocalAddr().(*net.UDPAddr).AddrPort()
				out := listenPacket(t, s, "udp4")
				if connected {
					d, err := s.Dial("udp4", to.String())
					if err != nil {
						t.Fatal(err)
					}
					out, to = d.(net.PacketConn), netip.AddrPort{}
				}
				packets := make([]unet.Packet, len(sizes))
				for i, n := range sizes {
					packets[i] = unet.Packet{Data: bytes.Repeat([]byte{byte(i)}, n), Addr: to}
				}
				if n, err := unet.NewBatchConn(out).WriteBatch(packets); n != len(packets) || err != nil {
					t.Fatalf("%s: %d, %v", what, n, err)
				}
				p := make([]byte, 1<<16)
				for i := range packets {
					n, _, err := c.ReadFrom(p)
					if err != nil || !bytes.Equal(p[:n], packets[i].Data) {
						t.Fatalf("%s, connected %v: datagram %d has %d bytes, or wrong data, %v", what, connected, i, n, err)
					}
				}
				_, _ = c.Close(), out.Close()
			}
		}
	})
}

// TestSegmentsThatTheKernelRefuses sends more segments, and more bytes, than the kernel
// takes in one message: they are sent one by one.
// Promise: unet/datagrams-sent-received
func TestSegmentsThatTheKernelRefuses(t *testing.T) {
	s := newSystem(t, unet.ModePlain)
	for _, total := range []int{20_000, 70_000} {
		size := total / 200 // the kernel takes 64 or 128
		if total > 65_507 {
			size = 1400
		}
		in, out := listenPacket(t, s, "udp4").(*unet.UDPConn), listenPacket(t, s, "udp4").(*unet.UDPConn)
		_ = in.SetReadBuffer(4 << 20)
		_ = in.SetReadDeadline(time.Now().Add(patience))
		data := numberedBytes(total)
		if n, err := out.WriteBatch([]unet.Packet{{Data: data, Segment: size, Addr: in.LocalAddr().(*net.UDPAddr).AddrPort()}}); n != 1 || err != nil {
			t.Fatalf("%d bytes: %d, %v", total, n, err)
		}
		p := make([]byte, 1<<16)
		for rest := data; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if n, err := in.Read(p); err != nil || !bytes.Equal(p[:n], rest[:min(size, len(rest))]) {
				t.Fatalf("%d bytes: %d, or wrong data, %v", total, n, err)
			}
		}
	}
}

// TestBatchStopsAtAnError sends a batch of which one packet has no address.
func TestBatchStopsAtAnError(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		c := listenPacket(t, s, "udp4")
		to := c.LocalAddr().(*net.UDPAddr).AddrPort()
		data := make([]byte, 10)
		n, err := unet.NewBatchConn(c).WriteBatch([]unet.Packet{{Data: data, Addr: to}, {Data: data, Addr: to}, {Data: data}, {Data: data, Addr: to}})
		if n != 2 || err == nil {
			t.Errorf("%d, %v", n, err)
		}
		n, err = unet.NewBatchConn(c).WriteBatch([]unet.Packet{{Data: data, Addr: to}, {Data: make([]byte, 70_000), Addr: to}, {Data: data, Addr: to}})
		if n != 1 || err == nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}
