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
	"time"

	"github.com/ringside-io/ringside/internal/sweep"
	"github.com/ringside-io/ringside/unet"
)

// opened returns n connections, both ends of each, that were made without
// faults and are closed by end.
func opened(t *sweep.Trial, s *unet.System, network, address string, n int) (pairs [][2]net.Conn, end func()) {
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
			_ = c.SetDeadline(time.Now().Add(sweep.Patience / 2))
		}
	}
	return pairs, end
}

// sweptSystem is a system for one run.
func sweptSystem(t *sweep.Trial, mode unet.Mode) *unet.System {
	s, err := unet.NewSystem(unet.Options{Mode: mode, Spin: -1})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

const sweptMessage = 16

// numbered is a message of its own for each connection and round.
func numbered(conn, round int) []byte {
	p := make([]byte, sweptMessage)
	binary.NativeEndian.PutUint64(p, uint64(conn))
	binary.NativeEndian.PutUint64(p[8:], uint64(round))
	return p
}

// reading is the reader of one connection: it tells of each message.
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

// send writes the message of a round; a connection that fails is left.
func (r *reading) send(t *sweep.Trial, round int) {
	if r.gone {
		return
	}
	if _, err := r.conn[0].Write(numbered(r.number, round)); !t.Judge("Write", err) {
		r.gone = true
		_ = r.conn[1].Close()
		<-r.got
	}
}

func (r *reading) receive(t *sweep.Trial) {
	if !r.gone {
		r.gone = !t.Judge("Read", <-r.got)
	}
}

// sweptRing has many wait at once, so that the driver receives for them through
// its ring: rounds of messages until that has been seen, or has failed.
func sweptRing(t *sweep.Trial) {
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
			more-- // and on with those that are left
		case round == rounds:
			more = 0
			if t.Planned() == "" {
				t.Errorf("no receive went through the ring")
			}
		}
	}
}

// spliced sends what one connection brings on another, as copying does.
func spliced(unix string, between func(to, from net.Conn) error) func(*sweep.Trial) {
	return func(t *sweep.Trial) {
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
			t.Errorf("%d bytes of %d have come, or others", len(got), size)
		}
	}
}

// exchange sends one message and receives it, after a fault without one.
func exchange(t *sweep.Trial, what string, send func(p []byte) error, receive func(p []byte) (int, error)) {
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

// sweptUDP sends and receives by each method of a UDP socket.
func sweptUDP(t *sweep.Trial) {
	s := sweptSystem(t, unet.ModeRing)
	c1, err := s.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	in := c1.(*unet.UDPConn)
	defer in.Close()
	c2, err := s.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	out := c2.(*unet.UDPConn)
	defer out.Close()
	c3, err := s.Dial("udp4", in.LocalAddr().String())
	if err != nil {
		t.Fatalf("%v", err)
	}
	connected := c3.(*unet.UDPConn)
	defer connected.Close()
	_ = in.SetDeadline(time.Now().Add(sweep.Patience / 2))
	to := in.LocalAddr().(*net.UDPAddr)
	port := to.AddrPort()
	port = netip.AddrPortFrom(port.Addr().Unmap(), port.Port())
	one := func(_ int, err error) error { return err }
	three := func(_, _ int, err error) error { return err }
	t.Arm()
	defer t.Disarm()
	exchange(t, "WriteTo", func(p []byte) error { return one(out.WriteTo(p, to)) },
		func(p []byte) (int, error) { n, _, err := in.ReadFrom(p); return n, err })
	exchange(t, "WriteToUDP", func(p []byte) error { return one(out.WriteToUDP(p, to)) },
		func(p []byte) (int, error) { n, _, err := in.ReadFromUDP(p); return n, err })
	exchange(t, "WriteToUDPAddrPort", func(p []byte) error { return one(out.WriteToUDPAddrPort(p, port)) },
		func(p []byte) (int, error) { n, _, err := in.ReadFromUDPAddrPort(p); return n, err })
	exchange(t, "WriteMsgUDP", func(p []byte) error { return three(out.WriteMsgUDP(p, nil, to)) },
		func(p []byte) (int, error) { n, _, _, _, err := in.ReadMsgUDP(p, nil); return n, err })
	exchange(t, "WriteMsgUDPAddrPort", func(p []byte) error { return three(out.WriteMsgUDPAddrPort(p, nil, port)) },
		func(p []byte) (int, error) { n, _, _, _, err := in.ReadMsgUDPAddrPort(p, nil); return n, err })
	exchange(t, "Write", func(p []byte) error { return one(connected.Write(p)) }, in.Read)
	exchange(t, "Writev", func(p []byte) error { _, err := connected.Writev(&net.Buffers{p[:3], p[3:]}); return err }, in.Read)
}

// sweptUnixgram does that for sockets of the Unix family.
func sweptUnixgram(dir string) func(t *sweep.Trial) {
	return func(t *sweep.Trial) {
		s := sweptSystem(t, unet.ModeRing)
		bind := func(name string) *unet.UnixgramConn {
			_ = os.Remove(filepath.Join(dir, name))
			c, err := s.ListenPacket("unixgram", filepath.Join(dir, name))
			if err != nil {
				t.Fatalf("%v", err)
			}
			return c.(*unet.UnixgramConn)
		}
		in := bind("in")
		defer in.Close()
		out := bind("out")
		defer out.Close()
		d, err := s.Dial("unixgram", filepath.Join(dir, "in"))
		if err != nil {
			t.Fatalf("%v", err)
		}
		connected := d.(*unet.UnixgramConn)
		defer connected.Close()
		_ = in.SetDeadline(time.Now().Add(sweep.Patience / 2))
		to := in.LocalAddr().(*net.UnixAddr)
		one := func(_ int, err error) error { return err }
		t.Arm()
		defer t.Disarm()
		exchange(t, "WriteTo", func(p []byte) error { return one(out.WriteTo(p, to)) },
			func(p []byte) (int, error) { n, _, err := in.ReadFrom(p); return n, err })
		exchange(t, "WriteToUnix", func(p []byte) error { return one(out.WriteToUnix(p, to)) },
			func(p []byte) (int, error) { n, _, err := in.ReadFromUnix(p); return n, err })
		exchange(t, "WriteMsgUnix", func(p []byte) error { _, _, err := out.WriteMsgUnix(p, nil, to); return err },
			func(p []byte) (int, error) { n, _, _, _, err := in.ReadMsgUnix(p, nil); return n, err })
		exchange(t, "WriteBatch", func(p []byte) error { return one(out.WriteBatch([]unet.Packet{{Data: p, Name: to.Name}})) },
			func(p []byte) (int, error) {
				got := []unet.Packet{{Data: p}}
				_, err := in.ReadBatch(got)
				return got[0].N, err
			})
		exchange(t, "Write", func(p []byte) error { return one(connected.Write(p)) }, in.Read)
		exchange(t, "Writev", func(p []byte) error { _, err := connected.Writev(&net.Buffers{p[:3], p[3:]}); return err }, in.Read)
	}
}

// sweptUnixMessages sends messages on a stream of the Unix family.
func sweptUnixMessages(path string) func(t *sweep.Trial) {
	return func(t *sweep.Trial) {
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

// sweptOptions calls everything that sets something, copies descriptors and ends
// directions; the connection goes on, or says why not.
func sweptOptions(t *sweep.Trial) {
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
			return // what was written is still there
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

// sweptListening listens with everything that can be asked for, and accepts by
// the concrete types.
func sweptListening(dir string) func(t *sweep.Trial) {
	return func(t *sweep.Trial) {
		s := sweptSystem(t, unet.ModeRing)
		ctx := context.Background()
		path := filepath.Join(dir, "listening")
		_ = os.Remove(path)
		t.Arm()
		defer t.Disarm()
		lc := unet.ListenConfig{System: s, ReusePort: true, Backlog: 16}
		lc.KeepAlive = time.Minute
		d := unet.Dialer{System: s}
		for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": path} {
			lc.ReusePort = network == "tcp"
			l, err := lc.Listen(ctx, network, address)
			if !t.Judge("Listen", err) {
				if _, err := os.Stat(path); network == "unix" && err == nil {
					t.Errorf("the file of a listener that is none is there")
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

// sweptAccept accepts one connection, again after a failure: it is not lost.
func sweptAccept(t *sweep.Trial, l net.Listener, dial func() (net.Conn, error)) {
	accept := func() (c net.Conn, err error) {
		switch l := l.(type) {
		case *unet.TCPListener:
			_ = l.SetDeadline(time.Now().Add(sweep.Patience / 2))
			return l.AcceptTCP()
		case *unet.UnixListener:
			_ = l.SetDeadline(time.Now().Add(sweep.Patience / 2))
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
		again, dialErr := dial() // the first one is accepted, or lost
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
