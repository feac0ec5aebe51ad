// SPDX-License-Identifier: MIT

package sockets

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
)

// batchServer is the environment variable that makes the test binary an echo server of datagrams, or
// of streams.
const batchServer = "RINGSIDE_BATCH_SERVER"

func init() {
	if engine := os.Getenv(batchServer); engine != "" {
		serve := serveBatches
		if strings.HasPrefix(engine, streamServer) {
			serve = serveStreams
		}
		if err := serve(engine); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// serveBatches echoes datagrams. It prints its address and then answers like answerCPU.
func serveBatches(engine string) error {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	_ = c.SetReadBuffer(1 << 20)
	addr := c.LocalAddr()
	switch engine {
	case "net":
		go echoOne(c)
	case "unet":
		u, err := ours(c)
		if err != nil {
			return err
		}
		go echoOne(u)
	case "net-batch":
		go echoXNet(ipv4.NewPacketConn(c))
	case "unet-batch":
		u, err := ours(c)
		if err != nil {
			return err
		}
		go echoBatches(u)
	case "event", "event-segments":
		s, err := event.New(nil, event.Handler{}, event.Options{Loops: 1})
		if err != nil {
			return err
		}
		h := event.PacketHandler{OnPacket: func(c *event.PacketConn, from event.Peer, p []byte) { _, _ = c.WriteTo(p, from) }}
		if engine == "event-segments" {
			h.OnSegments = func(c *event.PacketConn, from event.Peer, p []byte, size int) { _, _ = c.WriteSegments(p, size, from) }
		}
		pc, err := s.EnrollPacket(c, h)
		if err != nil {
			return err
		}
		if err := pc.SetGRO(engine == "event-segments"); err != nil {
			return err
		}
	}
	fmt.Println(addr)
	return answerCPU()
}

// answerCPU prints this process's CPU time in nanoseconds for each line of its input.
func answerCPU() error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		used, err := cpuTime()
		if err != nil {
			return err
		}
		fmt.Println(used)
	}
	return nil
}

func echoOne(c net.PacketConn) {
	for p := make([]byte, 2048); ; {
		n, from, err := c.ReadFrom(p)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(p[:n], from)
	}
}

const batchOf = 32

func echoXNet(c *ipv4.PacketConn) {
	in, out := make([]ipv4.Message, batchOf), make([]ipv4.Message, batchOf)
	for i := range in {
		in[i].Buffers = [][]byte{make([]byte, 2048)}
		out[i].Buffers = [][]byte{nil}
	}
	for {
		n, err := c.ReadBatch(in, 0)
		if err != nil {
			return
		}
		for i, m := range in[:n] {
			out[i].Buffers[0], out[i].Addr = m.Buffers[0][:m.N], m.Addr
		}
		for sent := 0; sent < n && err == nil; {
			var k int
			k, err = c.WriteBatch(out[sent:n], 0)
			sent += k
		}
	}
}

func echoBatches(c unet.BatchConn) {
	in, out := make([]unet.Packet, batchOf), make([]unet.Packet, batchOf)
	for i := range in {
		in[i].Data = make([]byte, 2048)
	}
	for {
		n, err := c.ReadBatch(in)
		if err != nil {
			return
		}
		for i, p := range in[:n] {
			out[i] = unet.Packet{Data: p.Data[:p.N], Addr: p.Addr}
		}
		_, _ = c.WriteBatch(out[:n])
	}
}

// BenchmarkDatagrams measures echo servers in processes of their own: with one peer that has 16
// datagrams of 64 bytes in flight, and with 100 peers that have one each. It reports the rate and
// the server's CPU time per datagram, which varies less on a busy machine. The "net" rows use
// package net and golang.org/x/net/ipv4.
func BenchmarkDatagrams(b *testing.B) {
	for _, peers := range []int{1, 100} {
		for _, engine := range []string{"net", "unet", "net-batch", "unet-batch"} {
			b.Run(fmt.Sprintf("%d/%s", peers, engine), func(b *testing.B) {
				s := startBatchServer(b, engine)
				client := newDatagramClient(b, s.addr, peers)
				client.round(b) // warms up
				before := s.cpu(b)
				n, begin := 0, time.Now()
				for b.Loop() {
					n += client.round(b)
				}
				took, used := time.Since(begin), s.cpu(b)-before
				b.ReportMetric(float64(n)/took.Seconds(), "datagrams/s")
				b.ReportMetric(float64(used)/float64(n), "server-ns/datagram")
			})
		}
	}
}

// BenchmarkSegments measures echo servers of package event in processes of their own with bursts of
// 40 datagrams of 1200 bytes: received and sent one by one, and in one piece. The client is the same.
func BenchmarkSegments(b *testing.B) {
	const size, burst = 1200, 40
	for _, engine := range []string{"event", "event-segments"} {
		b.Run(engine, func(b *testing.B) {
			s := startBatchServer(b, engine)
			addr, err := net.ResolveUDPAddr("udp4", s.addr)
			if err != nil {
				b.Fatal(err)
			}
			c, err := unet.DialUDP("udp4", nil, addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			if err := c.SetGRO(true); err != nil {
				b.Fatal(err)
			}
			out, in := []unet.Packet{{Data: make([]byte, burst*size), Segment: size}}, []unet.Packet{{Data: make([]byte, 1<<16)}}
			round := func() {
				_ = c.SetReadDeadline(time.Now().Add(patience))
				if _, err := c.WriteBatch(out); err != nil {
					b.Fatal(err)
				}
				for got := 0; got < burst*size; got += in[0].N {
					if _, err := c.ReadBatch(in); err != nil {
						b.Fatal(err)
					}
				}
			}
			round() // warms up
			before, n, begin := s.cpu(b), 0, time.Now()
			for b.Loop() {
				round()
				n += burst
			}
			took, used := time.Since(begin), s.cpu(b)-before
			b.ReportMetric(float64(n)/took.Seconds(), "datagrams/s")
			b.ReportMetric(float64(used)/float64(n), "server-ns/datagram")
		})
	}
}

type batchServerProcess struct {
	addr string
	in   io.Writer
	out  *bufio.Scanner
}

func startBatchServer(b *testing.B, engine string) *batchServerProcess {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), batchServer+"="+engine)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	s := &batchServerProcess{in: in, out: bufio.NewScanner(out)}
	if !s.out.Scan() {
		b.Fatalf("%s: no address: %v", engine, s.out.Err())
	}
	s.addr = s.out.Text()
	return s
}

// cpu returns the server's CPU time.
func (s *batchServerProcess) cpu(b *testing.B) int64 {
	if _, err := io.WriteString(s.in, "\n"); err != nil || !s.out.Scan() {
		b.Fatalf("no reply: %v, %v", err, s.out.Err())
	}
	n, err := strconv.ParseInt(s.out.Text(), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// datagramClient sends a burst of datagrams and waits for all replies.
type datagramClient struct {
	conns []*ipv4.PacketConn
	nets  []net.Conn
	out   []ipv4.Message
	in    []ipv4.Message
}

func newDatagramClient(b *testing.B, addr string, peers int) *datagramClient {
	c := new(datagramClient)
	for range peers {
		conn, err := net.Dial("udp4", addr)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		c.nets, c.conns = append(c.nets, conn), append(c.conns, ipv4.NewPacketConn(conn.(net.PacketConn)))
	}
	each := 1
	if peers == 1 {
		each = 16
	}
	for range each {
		c.out = append(c.out, ipv4.Message{Buffers: [][]byte{make([]byte, 64)}})
		c.in = append(c.in, ipv4.Message{Buffers: [][]byte{make([]byte, 64)}})
	}
	return c
}

// round exchanges one burst and returns the number of datagrams that came back.
func (c *datagramClient) round(b *testing.B) int {
	for i, conn := range c.conns {
		_ = c.nets[i].SetReadDeadline(time.Now().Add(patience))
		for sent := 0; sent < len(c.out); {
			n, err := conn.WriteBatch(c.out[sent:], 0)
			if err != nil {
				b.Fatal(err)
			}
			sent += n
		}
	}
	for _, conn := range c.conns {
		for got := 0; got < len(c.in); {
			n, err := conn.ReadBatch(c.in[got:], 0)
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
	return len(c.conns) * len(c.out)
}

// ours converts a socket of package net to one of package unet, and closes c.
func ours(c *net.UDPConn) (*unet.UDPConn, error) {
	f, err := c.File()
	if err != nil {
		return nil, err
	}
	_ = c.Close()
	pc, err := unet.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	return pc.(*unet.UDPConn), nil
}
