// SPDX-License-Identifier: MIT

package unet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/faultsweep"
	"github.com/ringside-io/ringside/unet"
)

// sweptBytes is the data that the connections of the sweep transfer.
var sweptBytes = func() []byte {
	p := make([]byte, 100_000)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}()

// streams runs do with both ends of n connections. The connections are also opened under
// faults; calls that wait end in time.
func streams(t *faultsweep.Trial, mode unet.Mode, network, address string, n int, do func(a, b net.Conn)) {
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
			_ = d.Close() // accepted or not, the connection is lost
			t.Disarm()
			again(t, s, l)
			continue
		}
		for _, c := range []net.Conn{c, d} {
			_ = c.SetDeadline(time.Now().Add(faultsweep.Patience / 2))
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
func again(t *faultsweep.Trial, s *unet.System, l net.Listener) {
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

// ends checks the error of one end of a connection: after a failure of the other end it may
// see that.
func ends(t *faultsweep.Trial, what string, err error) {
	switch c, fired := t.Choice(); {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.Errorf("%s: %v", what, err)
	case !fired || c.Passing:
		t.Judge(what, err)
	}
}

// sweptStream writes at one end and reads at the other, through write and read.
func sweptStream(mode unet.Mode, network, address string, n int, write func(net.Conn, []byte) error, read func(net.Conn) ([]byte, error)) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
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
				_ = b.Close() // a writer must not wait for a reader that has failed
			}
			wg.Wait()
			if c, fired := t.Choice(); !bytes.HasPrefix(sweptBytes, got) || len(got) < len(sweptBytes) && (!fired || c.Passing) {
				t.Errorf("%d of %d bytes arrived, or wrong data", len(got), len(sweptBytes))
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
func sweptPackets(mode unet.Mode) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
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
		_ = in.SetDeadline(time.Now().Add(faultsweep.Patience / 2))
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
				t.Errorf("datagram %d has %d bytes, or wrong data", i, got[i].N)
			}
		}
	}
}

// sweptSegments sends segments, also through a device that cannot send them: that is EIO.
func sweptSegments(t *faultsweep.Trial) {
	s := sweptSystem(t, unet.ModeRing)
	c, err := s.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer c.Close()
	in := c.(*unet.UDPConn)
	_ = in.SetDeadline(time.Now().Add(faultsweep.Patience / 2))
	if err := in.SetGRO(true); err != nil {
		t.Fatalf("%v", err)
	}
	t.Arm()
	defer t.Disarm()
	data := sweptBytes[:5500]
	out := []unet.Packet{{Data: data, Segment: 1000, Addr: in.LocalAddr().(*net.UDPAddr).AddrPort()}}
	if n, err := in.WriteBatch(out); n != 1 || err != nil {
		t.Errorf("WriteBatch: %d, %v", n, err)
		return
	}
	var got []byte
	for len(got) < len(data) {
		p := []unet.Packet{{Data: make([]byte, 1<<16)}}
		if _, err := in.ReadBatch(p); err != nil {
			t.Errorf("ReadBatch: %v", err)
			return
		}
		got = append(got, p[0].Data[:p[0].N]...)
	}
	if !bytes.Equal(got, data) {
		t.Errorf("wrong data arrived")
	}
}

// sweptOperations are all operations that the sweep runs, with files in dir.
func sweptOperations(dir string) []faultsweep.Operation {
	// These receives do not wait, and use no provided buffers.
	recv := map[string][]faultsweep.Choice{"RECV": append(
		faultsweep.Fails(syscall.ECONNRESET, syscall.ENOMEM, syscall.ENOBUFS, syscall.EIO),
		append(faultsweep.Passes(syscall.EINTR, syscall.ECANCELED), faultsweep.Choice{Late: true, Passing: true})...)}
	const tcp = "127.0.0.1:0"
	unix, file := filepath.Join(dir, "s"), filepath.Join(dir, "file")
	messages := []string{"sendmmsg", "recvmmsg", "send", "recv", "sendmsg", "epoll_wait"}
	ring := []string{"RECV", "io_uring_enter", "io_uring_setup", "mmap"}
	ops := []faultsweep.Operation{
		{Name: "tcp, ring, four", Syscalls: true, Run: sweptStream(unet.ModeRing, "tcp", tcp, 4, writeAll, readAll), Most: 4,
			Covers: "NewSystem System.Listen System.Dial TCPListener.Accept TCPListener.Close TCPConn.Read TCPConn.Write TCPConn.Close TCPConn.SetDeadline"},
		{Name: "tcp, plain", Run: sweptStream(unet.ModePlain, "tcp", tcp, 1, writeAll, readAll), Most: 4},
		{Name: "tcp, the driver's ring", Syscalls: true, Run: sweptRing, Only: ring, Most: 3},
		{Name: "unix, ring", Syscalls: true, Run: sweptStream(unet.ModeRing, "unix", unix, 1, writeAll, readAll), Most: 4,
			Covers: "UnixListener.Accept UnixListener.Close UnixConn.Read UnixConn.Write UnixConn.Close UnixConn.SetDeadline"},
		{Name: "Writev", Run: sweptStream(unet.ModeRing, "tcp", tcp, 1, vectored, readAll), Opened: true, Most: 3, Covers: "TCPConn.Writev"},
		{Name: "ReadFrom a file", Run: sweptStream(unet.ModeRing, "tcp", tcp, 1, fromFile(file), readAll), Opened: true, Most: 3, Covers: "TCPConn.ReadFrom"},
		{Name: "WriteTo anything", Run: spliced(unix, func(to, from net.Conn) error {
			defer to.Close()
			_, err := io.Copy(struct{ io.Writer }{to}, from) // which calls WriteTo of its source
			return err
		}), Opened: true, Most: 2},
		{Name: "WriteTo a connection", Run: spliced(unix, func(to, from net.Conn) error {
			_, err := from.(*unet.TCPConn).WriteTo(to)
			return err
		}), Opened: true, Most: 3, Covers: "TCPConn.WriteTo"},
		{Name: "batches of datagrams", Run: sweptPackets(unet.ModeRing), Most: 4,
			Covers: "System.ListenPacket UDPConn.ReadBatch UDPConn.WriteBatch"},
		{Name: "segments", Run: sweptSegments, Only: []string{"sendmmsg"}, Covers: "UDPConn.SetGRO"},
		{Name: "datagrams, unix", Run: sweptUnixgram(dir), Covers: "UnixgramConn.WriteBatch UnixgramConn.ReadBatch"},
		{Name: "messages, unix", Run: sweptUnixMessages(unix), Only: messages, Covers: "UnixConn.WriteMsgUnix UnixConn.ReadMsgUnix UnixConn.ReadFrom UnixConn.ReadFromUnix UnixConn.Writev"},
		{Name: "options", Run: sweptOptions, Most: 12, Covers: "TCPConn.SetNoDelay TCPConn.SetKeepAlive TCPConn.SetKeepAlivePeriod TCPConn.SetKeepAliveConfig TCPConn.SetLinger " +
			"TCPConn.SetReadBuffer TCPConn.SetWriteBuffer TCPConn.File TCPConn.SyscallConn TCPConn.CloseRead TCPConn.CloseWrite"},
		{Name: "listening", Run: sweptListening(dir), Most: 3, Covers: "ListenConfig.Listen ListenConfig.ListenPacket Dialer.DialContext TCPListener.AcceptTCP TCPListener.SetDeadline " +
			"UnixListener.AcceptUnix UnixListener.SetDeadline UnixListener.File"},
		{Name: "concrete types", Run: sweptTypes(dir), Most: 3, Covers: "Dialer.DialTCP Dialer.DialUDP Dialer.DialUnix ListenTCP ListenUDP ListenUnix ListenUnixgram"},
		{Name: "files", Run: sweptFiles, Most: 4, Covers: "System.FileConn System.FileListener System.FilePacketConn TCPConn.SetUserTimeout"},
	}
	for i := range ops {
		ops[i].Instead = recv
		if ops[i].Name == "segments" {
			ops[i].Instead = map[string][]faultsweep.Choice{"sendmmsg": faultsweep.Fails(syscall.EIO)}
		}
	}
	return ops
}

// TestFaultSweep makes each call to the kernel fail in turn.
// Promise: unet/datagrams-sent-received
// Promise: unet/right-result-error
func TestFaultSweep(t *testing.T) {
	faultsweep.Need(t)
	newSystem(t, unet.ModeRing)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), sweptBytes, 0o600); err != nil {
		t.Fatal(err)
	}
	faultsweep.Check(t, sweptOperations(dir))
}

// TestFaultSweepSimulated does the same with simulated rings.
// Promise: unet/right-result-error
func TestFaultSweepSimulated(t *testing.T) {
	newSystem(t, unet.ModeRing)
	faultsweep.CheckSimulated(t, sweptOperations(t.TempDir()))
}

// TestFaultSweepCoversAll compares the sweep with the exported functions of the package.
// Promise: unet/right-result-error
func TestFaultSweepCoversAll(t *testing.T) {
	faultsweep.API(t, sweptOperations(""), faultsweep.Exempt{
		"calls the method of the default System":                   "Listen ListenPacket Dial Backend FileConn FileListener FilePacketConn",
		"calls the Dialer's method, with addresses of package net": "DialTCP DialUDP DialUnix",
		"is ListenUDP, with a group that package net joins":        "ListenMulticastUDP",
		"is the function of package net":                           "Dialer.DialIP",
		"reads or writes memory, the environment or a command":     "SegmentControl SegmentSize Inherited PassOn",
		"is Dial with a deadline of package net":                   "DialTimeout",
		"is DialContext without a context":                         "Dialer.Dial",
		"sets or reads a field":                                    "UnixListener.SetUnlinkOnClose Dialer.SetMultipathTCP Dialer.MultipathTCP ListenConfig.SetMultipathTCP ListenConfig.MultipathTCP",
		"returns known data without a system call":                 "System.Backend System.Stats Stats.Plus Total TCPConn.LocalAddr TCPConn.RemoteAddr UnixConn.LocalAddr UnixConn.RemoteAddr TCPListener.Addr UnixListener.Addr",
		"is one half of SetDeadline, which is a timer":             "TCPConn.SetReadDeadline TCPConn.SetWriteDeadline UnixConn.SetReadDeadline UnixConn.SetWriteDeadline",
		"is one call of getsockopt whose failure means no":         "TCPConn.MultipathTCP",
		"reads one datagram after the other through its argument":  "NewBatchConn",
		"is the same function as that of TCPConn":                  "UnixConn.CloseRead UnixConn.CloseWrite UnixConn.File UnixConn.SetReadBuffer UnixConn.SetWriteBuffer UnixConn.SyscallConn",
		"is the same function as that of UnixListener or TCPConn":  "TCPListener.File TCPListener.SyscallConn UnixListener.SyscallConn",
		"always fails: a connection has its peer":                  "UnixConn.WriteTo UnixConn.WriteToUnix",
	})
}

// opened returns n connections, both ends of each, which were made without faults; end
// closes them.
func opened(t *faultsweep.Trial, s *unet.System, network, address string, n int) (pairs [][2]net.Conn, end func()) {
	end = func() {
		for _, p := range pairs {
			_, _ = p[0].Close(), p[1].Close()
		}
	}
	if address != "127.0.0.1:0" {
		_ = os.Remove(address)
	}
	l, err := s.Listen(network, address)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer l.Close()
	for range n {
		a, err := s.Dial(network, l.Addr().String())
		if err != nil {
			end()
			t.Fatalf("%v", err)
		}
		b, err := l.Accept()
		if err != nil {
			_ = a.Close()
			end()
			t.Fatalf("%v", err)
		}
		pairs = append(pairs, [2]net.Conn{a, b})
		for _, c := range []net.Conn{a, b} {
			_ = c.SetDeadline(time.Now().Add(faultsweep.Patience / 2))
		}
	}
	return pairs, end
}

// sweptSystem is a System for one run.
func sweptSystem(t *faultsweep.Trial, mode unet.Mode) *unet.System {
	s, err := unet.NewSystem(unet.Options{Mode: mode, Spin: -1})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

const sweptMessage = 16

// numbered returns a different message for each connection and round.
func numbered(conn, round int) []byte {
	p := make([]byte, sweptMessage)
	binary.NativeEndian.PutUint64(p, uint64(conn))
	binary.NativeEndian.PutUint64(p[8:], uint64(round))
	return p
}

// reading reads from one connection and reports each message.
type reading struct {
	conn   [2]net.Conn
	number int
	got    chan error
	gone   bool
}

func (r *reading) run() {
	p := make([]byte, sweptMessage)
	for round := 0; ; round++ {
		_, err := io.ReadFull(r.conn[1], p)
		if err == nil && !bytes.Equal(p, numbered(r.number, round)) {
			err = errors.New("another message")
		}
		r.got <- err
		if err != nil {
			return
		}
	}
}

// send writes the message of a round; a connection that fails is dropped.
func (r *reading) send(t *faultsweep.Trial, round int) {
	if r.gone {
		return
	}
	if _, err := r.conn[0].Write(numbered(r.number, round)); !t.Judge("Write", err) {
		r.gone = true
		_ = r.conn[1].Close()
		<-r.got
	}
}

func (r *reading) receive(t *faultsweep.Trial) {
	if !r.gone {
		r.gone = !t.Judge("Read", <-r.got)
	}
}

// sweptRing lets many calls wait at once, so that the driver receives for them through its
// ring. It sends rounds of messages until a receive went through the ring or has failed.
func sweptRing(t *faultsweep.Trial) {
	const conns, enough, rounds = 8, 4, 2000
	pairs, end := opened(t, sweptSystem(t, unet.ModeRing), "tcp", "127.0.0.1:0", conns)
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	readers := make([]*reading, conns)
	for i := range readers {
		readers[i] = &reading{conn: pairs[i], number: i, got: make(chan error, 1)}
		all.Go(readers[i].run)
	}
	t.Arm()
	defer t.Disarm()
	for round, more := 0, 2; more > 0; round++ {
		for _, r := range readers {
			r.send(t, round)
		}
		for _, r := range readers {
			r.receive(t)
		}
		switch _, fired := t.Choice(); {
		case fired, t.Seen("RECV") >= enough:
			more-- // and continue with the remaining connections
		case round == rounds:
			more = 0
			if t.FaultKind() == "" {
				t.Errorf("no receive went through the ring")
			}
		}
	}
}

// spliced sends the data of one connection on another, as io.Copy does.
func spliced(unix string, between func(to, from net.Conn) error) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		s := sweptSystem(t, unet.ModeRing)
		in, end := opened(t, s, "tcp", "127.0.0.1:0", 1)
		defer end()
		out, end := opened(t, s, "unix", unix, 1)
		defer end()
		const size = 40_000
		t.Arm()
		defer t.Disarm()
		var all sync.WaitGroup
		all.Go(func() {
			_, err := in[0][0].Write(sweptBytes[:size])
			ends(t, "Write", err)
			_ = in[0][0].Close()
		})
		all.Go(func() {
			ends(t, "copy", between(out[0][0], in[0][1]))
			_, _ = out[0][0].Close(), in[0][1].Close()
		})
		got, err := io.ReadAll(out[0][1])
		ends(t, "Read", err)
		if err != nil {
			_ = out[0][1].Close()
		}
		all.Wait()
		if c, fired := t.Choice(); !bytes.HasPrefix(sweptBytes, got) || len(got) < size && (!fired || c.Passing) {
			t.Errorf("%d of %d bytes arrived, or wrong data", len(got), size)
		}
	}
}

// exchange sends one message and receives it. After a fault it tries again without one.
func exchange(t *faultsweep.Trial, what string, send func(p []byte) error, receive func(p []byte) (int, error)) {
	want := []byte("this goes by " + what)
	if !t.Judge(what+": send", send(want)) {
		return
	}
	p := make([]byte, 100)
	n, err := receive(p)
	if !t.Judge(what+": receive", err) {
		t.Disarm()
		n, err = receive(p)
	}
	if err != nil || !bytes.Equal(p[:n], want) {
		t.Errorf("%s: received %q, %v", what, p[:n], err)
	}
}

// sweptUnixgram sends a Unix datagram in a batch.
func sweptUnixgram(dir string) func(t *faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		path := filepath.Join(dir, "in")
		_ = os.Remove(path)
		c, err := sweptSystem(t, unet.ModeRing).ListenPacket("unixgram", path)
		if err != nil {
			t.Fatalf("%v", err)
		}
		defer c.Close()
		in := c.(*unet.UnixgramConn)
		_ = in.SetDeadline(time.Now().Add(faultsweep.Patience / 2))
		t.Arm()
		defer t.Disarm()
		exchange(t, "WriteBatch", func(p []byte) error {
			_, err := in.WriteBatch([]unet.Packet{{Data: p, Name: path}})
			return err
		}, func(p []byte) (int, error) {
			got := []unet.Packet{{Data: p}}
			_, err := in.ReadBatch(got)
			return got[0].N, err
		})
	}
}

// sweptUnixMessages sends messages on a Unix stream.
func sweptUnixMessages(path string) func(t *faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		pairs, end := opened(t, sweptSystem(t, unet.ModeRing), "unix", path, 1)
		defer end()
		a, b := pairs[0][0].(*unet.UnixConn), pairs[0][1].(*unet.UnixConn)
		t.Arm()
		defer t.Disarm()
		send := func(p []byte) error { _, _, err := a.WriteMsgUnix(p, nil, nil); return err }
		exchange(t, "ReadMsgUnix", send, func(p []byte) (int, error) { n, _, _, _, err := b.ReadMsgUnix(p, nil); return n, err })
		exchange(t, "ReadFrom", send, func(p []byte) (int, error) { n, _, err := b.ReadFrom(p); return n, err })
		exchange(t, "ReadFromUnix", send, func(p []byte) (int, error) { n, _, err := b.ReadFromUnix(p); return n, err })
		exchange(t, "Writev", func(p []byte) error { _, err := a.Writev(&net.Buffers{p[:3], p[3:]}); return err }, b.Read)
	}
}

// sweptOptions calls all functions that set an option, copies descriptors and closes
// directions; the connection still works, or its error tells why not.
func sweptOptions(t *faultsweep.Trial) {
	pairs, end := opened(t, sweptSystem(t, unet.ModeRing), "tcp", "127.0.0.1:0", 1)
	defer end()
	a, b := pairs[0][0].(*unet.TCPConn), pairs[0][1].(*unet.TCPConn)
	t.Arm()
	defer t.Disarm()
	t.Judge("SetNoDelay", a.SetNoDelay(true))
	t.Judge("SetKeepAlive", a.SetKeepAlive(true))
	t.Judge("SetKeepAlivePeriod", a.SetKeepAlivePeriod(time.Minute))
	t.Judge("SetKeepAliveConfig", a.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true}))
	t.Judge("SetLinger", a.SetLinger(-1))
	t.Judge("SetReadBuffer", a.SetReadBuffer(64<<10))
	t.Judge("SetWriteBuffer", a.SetWriteBuffer(64<<10))
	file, err := a.File()
	if t.Judge("File", err) {
		_ = file.Close()
	}
	raw, err := a.SyscallConn()
	if t.Judge("SyscallConn", err) {
		t.Judge("Control", raw.Control(func(uintptr) {}))
		t.Judge("Write", raw.Write(func(fd uintptr) bool {
			n, err := syscall.Write(int(fd), []byte("raw"))
			return n > 0 || err != syscall.EAGAIN
		}))
		p := make([]byte, 3)
		if _, err := io.ReadFull(b, p); !t.Judge("Read", err) {
			return // the written bytes are still there
		}
		if string(p) != "raw" {
			t.Errorf("read %q", p)
		}
	}
	if t.Judge("CloseWrite", a.CloseWrite()) {
		p := make([]byte, 3)
		if n, err := b.Read(p); err != io.EOF {
			t.Judge("Read after CloseWrite", err)
			if err == nil {
				t.Errorf("read %q after the end", p[:n])
			}
		}
	}
	if t.Judge("CloseRead", b.CloseRead()) {
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Judge("Read after CloseRead", err)
		}
	}
}

// sweptListening listens with all options, and accepts by the concrete types.
func sweptListening(dir string) func(t *faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		s := sweptSystem(t, unet.ModeRing)
		ctx := context.Background()
		path := filepath.Join(dir, "listening")
		_ = os.Remove(path)
		t.Arm()
		defer t.Disarm()
		lc := unet.ListenConfig{System: s, UserTimeout: time.Second}
		lc.KeepAlive = time.Minute
		d := unet.Dialer{System: s}
		for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": path} {
			l, err := lc.Listen(ctx, network, address)
			if !t.Judge("Listen", err) {
				if _, err := os.Stat(path); network == "unix" && err == nil {
					t.Errorf("a failed listen left the socket's file")
				}
				continue
			}
			sweptAccept(t, l, func() (net.Conn, error) { return d.DialContext(ctx, network, l.Addr().String()) })
			if err := l.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		p, err := lc.ListenPacket(ctx, "udp", "127.0.0.1:0")
		if t.Judge("ListenPacket", err) {
			file, err := p.(*unet.UDPConn).File()
			if t.Judge("UDPConn.File", err) {
				_ = file.Close()
			}
			t.Judge("SetReadBuffer", p.(*unet.UDPConn).SetReadBuffer(64<<10))
			t.Judge("SetWriteBuffer", p.(*unet.UDPConn).SetWriteBuffer(64<<10))
			_ = p.Close()
		}
	}
}

// sweptTypes opens sockets by the functions that return concrete types. Where one fails, a
// second call succeeds.
func sweptTypes(dir string) func(t *faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		ctx := context.Background()
		stream := &net.UnixAddr{Name: filepath.Join(dir, "typed"), Net: "unix"}
		grams := &net.UnixAddr{Name: filepath.Join(dir, "grams"), Net: "unixgram"}
		d := unet.Dialer{System: sweptSystem(t, unet.ModeRing), UserTimeout: time.Second}
		to := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
		_, _ = os.Remove(stream.Name), os.Remove(grams.Name)
		t.Arm()
		defer t.Disarm()
		tcp, ok := opens(t, "ListenTCP", func() (*unet.TCPListener, error) { return unet.ListenTCP("tcp", to) })
		if ok {
			defer tcp.Close()
			if c, ok := opens(t, "DialTCP", func() (*unet.TCPConn, error) {
				return d.DialTCP(ctx, "tcp", netip.AddrPort{}, tcp.Addr().(*net.TCPAddr).AddrPort())
			}); ok {
				_ = c.Close()
			}
		}
		udp, ok := opens(t, "ListenUDP", func() (*unet.UDPConn, error) { return unet.ListenUDP("udp", &net.UDPAddr{IP: to.IP}) })
		if ok {
			defer udp.Close()
			if c, ok := opens(t, "DialUDP", func() (*unet.UDPConn, error) {
				return d.DialUDP(ctx, "udp", netip.AddrPort{}, udp.LocalAddr().(*net.UDPAddr).AddrPort())
			}); ok {
				_ = c.Close()
			}
		}
		unix, ok := opens(t, "ListenUnix", func() (*unet.UnixListener, error) { return unet.ListenUnix("unix", stream) })
		if ok {
			defer unix.Close()
			if c, ok := opens(t, "DialUnix", func() (*unet.UnixConn, error) { return d.DialUnix(ctx, "unix", nil, stream) }); ok {
				_ = c.Close()
			}
		}
		if c, ok := opens(t, "ListenUnixgram", func() (*unet.UnixgramConn, error) {
			_ = os.Remove(grams.Name) // Close does not remove it, as in package net
			return unet.ListenUnixgram("unixgram", grams)
		}); ok {
			_ = c.Close()
		}
	}
}

// opens calls open, a second time without faults if it fails, and reports whether it
// succeeded.
func opens[T any](t *faultsweep.Trial, what string, open func() (T, error)) (T, bool) {
	c, err := open()
	if !t.Judge(what, err) {
		t.Disarm()
		if c, err = open(); err != nil {
			t.Errorf("%s afterwards: %v", what, err)
		}
	}
	return c, err == nil
}

// sweptFiles makes sockets from files, which stay usable when that fails.
func sweptFiles(t *faultsweep.Trial) {
	s := sweptSystem(t, unet.ModeRing)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer l.Close()
	d, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer d.Close()
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer p.Close()
	var files [3]*os.File
	for i, c := range []any{l, d, p} {
		if files[i], err = c.(interface{ File() (*os.File, error) }).File(); err != nil {
			t.Fatalf("%v", err)
		}
		defer files[i].Close()
	}
	t.Arm()
	defer t.Disarm()
	listener, ok := opens(t, "FileListener", func() (net.Listener, error) { return s.FileListener(files[0]) })
	if ok {
		defer listener.Close()
	}
	if c, ok := opens(t, "FileConn", func() (net.Conn, error) { return s.FileConn(files[1]) }); ok {
		t.Judge("SetUserTimeout", c.(*unet.TCPConn).SetUserTimeout(time.Second))
		_ = c.Close()
	}
	if c, ok := opens(t, "FilePacketConn", func() (net.PacketConn, error) { return s.FilePacketConn(files[2]) }); ok {
		_ = c.Close()
	}
}

// sweptAccept accepts one connection, again after a failure: the connection is not lost.
func sweptAccept(t *faultsweep.Trial, l net.Listener, dial func() (net.Conn, error)) {
	accept := func() (c net.Conn, err error) {
		switch l := l.(type) {
		case *unet.TCPListener:
			_ = l.SetDeadline(time.Now().Add(faultsweep.Patience / 2))
			return l.AcceptTCP()
		case *unet.UnixListener:
			_ = l.SetDeadline(time.Now().Add(faultsweep.Patience / 2))
			return l.AcceptUnix()
		}
		return nil, errors.New("another listener")
	}
	d, err := dial()
	if !t.Judge("Dial", err) {
		t.Disarm()
		if d, err = dial(); err != nil {
			t.Errorf("dial afterwards: %v", err)
			return
		}
	}
	defer func() { _ = d.Close() }()
	c, err := accept()
	if !t.Judge("Accept", err) {
		t.Disarm()
		again, dialErr := dial() // the first connection is accepted, or lost
		if dialErr != nil {
			t.Errorf("dial afterwards: %v", dialErr)
			return
		}
		defer again.Close()
		c, err = accept()
	}
	if err != nil {
		t.Errorf("accept afterwards: %v", err)
		return
	}
	_ = c.Close()
	if strings.HasPrefix(l.Addr().Network(), "unix") {
		file, err := l.(*unet.UnixListener).File()
		if t.Judge("File", err) {
			_ = file.Close()
		}
	}
}
