// SPDX-License-Identifier: MIT

package unet

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestKeysOfClosedSocketsFindNothing reuses a slot of the table.
// Promise: unet/close-ends-waiting
func TestKeysOfClosedSocketsFindNothing(t *testing.T) {
	var tab table
	a, b := new(sock), new(sock)
	old := tab.add(a)
	if tab.find(old) != a {
		t.Fatal("the key of an open socket finds nothing")
	}
	tab.remove(old)
	key := tab.add(b)
	if uint32(key) != uint32(old) {
		t.Fatal("the slot was not reused")
	}
	if tab.find(old) != nil || tab.find(key) != b || tab.find(1<<40|77) != nil {
		t.Error("the key of a closed socket finds another socket")
	}
}

// TestRingThatFails gives a loop a ring that fails: the receives of the batch are made by
// system calls.
// Promise: unet/right-result-error
func TestRingThatFails(t *testing.T) {
	ringtest.NeedRing(t)
	ring, err := uring.Open(uring.Options{Entries: maxBatch, Disabled: true})
	if err != nil {
		t.Fatal(err)
	}
	logger, await := ringtest.Logger(t)
	s, err := NewSystem(Options{Mode: ModePlain, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	await("backend=plain")
	l := &loop{system: s, useRing: true, ring: ring, cqes: make([]uring.CQE, maxBatch)}
	var waiting []chan string
	for range 2 {
		c, peer := settled(t, s)
		// Take the receive before the driver can.
		c.mu.Lock()
		c.rd.wake = make(chan struct{}, 1)
		buf := make([]byte, 8)
		c.rd.state, c.in.buf = taken, buf
		l.batch = append(l.batch, receive{&c.sock, buf})
		c.mu.Unlock()
		if _, err := peer.Write([]byte("arrived")); err != nil {
			t.Fatal(err)
		}
		ch := make(chan string, 1)
		go func() {
			<-c.rd.wake
			ch <- string(buf[:c.in.res])
		}()
		waiting = append(waiting, ch)
	}
	time.Sleep(10 * time.Millisecond) // the loopback interface delivers
	l.receive()
	for _, ch := range waiting {
		if got := <-ch; got != "arrived" {
			t.Errorf("received %q", got)
		}
	}
	if l.ring != nil || l.useRing {
		t.Error("the broken ring is still in use")
	}
	await("plain calls receive instead")
}

func connect(t *testing.T, s *System) (*TCPConn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := s.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); peer.Close() })
	return c.(*TCPConn), peer
}

// TestConnectionsAreSmall checks the size of an idle connection.
func TestConnectionsAreSmall(t *testing.T) {
	if size := sys.Size[TCPConn](); size > 256 {
		t.Errorf("a TCPConn takes %d bytes, more than its size class", size)
	}
}

// TestSpinnerGivesUp records spins without events, followed by one with an event.
func TestSpinnerGivesUp(t *testing.T) {
	s := spinner{limit: time.Microsecond}
	s.found(1, 7)
	spins := 0
	for range 1000 {
		if s.worthwhile() {
			spins++
			s.missed()
		}
	}
	if spins < 5 || spins > 30 {
		t.Errorf("spun %d of 1000 times without an event", spins)
	}
	s.found(fewEvents+1, 7)
	if s.skip = 0; s.worthwhile() {
		t.Error("spins although there is other work")
	}
	if s.found(1, 7); !s.worthwhile() {
		t.Error("does not spin although spinning finds events")
	}
	for range aloneAfter {
		s.found(1, 7)
	}
	if s.worthwhile() {
		t.Error("spins for a single connection")
	}
	if s.found(1, 8); !s.worthwhile() {
		t.Error("does not spin for two connections")
	}
}

// soloPair returns a connection that a listener of s accepted. Its peer belongs to package
// net.
func soloPair(t *testing.T, s *System, l net.Listener) (c, peer net.Conn) {
	t.Helper()
	peer, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if c, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); peer.Close() })
	return c, peer
}

// exchange sends a byte from peer to c and one back.
func exchange(t *testing.T, c, peer net.Conn) {
	t.Helper()
	p, room := make([]byte, 1), make([]byte, 8) // a Read into a full buffer is followed by another without waiting
	if _, err := peer.Write(p); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(room); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(p); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Read(p); err != nil {
		t.Fatal(err)
	}
}

// isAlone reports whether the calls of c wait in the netpoller.
func isAlone(c net.Conn) bool {
	var s *sock
	switch c := c.(type) {
	case *TCPConn:
		s = &c.sock
	case *UnixConn:
		s = &c.sock
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alone != nil && !s.alone.recalled
}

// soloListener returns a System with one driver, and a listener of it.
func soloListener(t *testing.T, network string) (*System, net.Listener) {
	t.Helper()
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = t.TempDir() + "/s"
	}
	l, err := s.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return s, l
}

// TestSingleConnectionWaitsAlone exchanges messages on one connection, which does not need
// the driver. When another connection is as active, both return to the driver. A third
// connection that is less active has no effect on one that waits alone.
// Promise: unet/active-connection-driver
func TestSingleConnectionWaitsAlone(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			s, l := soloListener(t, network)
			c, peer := soloPair(t, s, l)
			// An exchange whose message arrives before the Read needs no pass.
			for end := time.Now().Add(time.Minute); !isAlone(c); exchange(t, c, peer) {
				if time.Now().After(end) {
					t.Fatal("the only active connection does not wait alone")
				}
			}
			before := s.Stats().Passes
			for range 200 {
				exchange(t, c, peer)
			}
			if passes := s.Stats().Passes - before; passes > 2 { // passes of earlier events
				t.Errorf("the driver made %d passes for a connection that waits alone", passes)
			}

			d, peerOfD := soloPair(t, s, l)
			for end := time.Now().Add(time.Minute); isAlone(c); {
				exchange(t, d, peerOfD)
				exchange(t, c, peer)
				if time.Now().After(end) {
					t.Fatal("one of two active connections waits alone")
				}
			}
			for range 100 { // exchanges succeed on both
				exchange(t, d, peerOfD)
				exchange(t, c, peer)
			}
			for end := time.Now().Add(time.Minute); !isAlone(d); exchange(t, d, peerOfD) {
				if time.Now().After(end) {
					t.Fatal("the remaining connection does not wait alone")
				}
			}
		})
	}
}

// exchangeLarge sends n bytes from peer to c and back.
func exchangeLarge(t *testing.T, c, peer net.Conn, n int) {
	t.Helper()
	sent := make([]byte, n)
	for i := range sent {
		sent[i] = byte(i*7 + i>>8)
	}
	written := make(chan error, 1)
	go func() { _, err := peer.Write(sent); written <- err }()
	room := make([]byte, n+1) // see exchange
	if _, err := io.ReadAtLeast(c, room, n); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	go func() { _, err := c.Write(room[:n]); written <- err }()
	got := make([]byte, n)
	if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("the answer differs, error %v", err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

// TestLargeMessagesWaitAlone exchanges large messages on two connections and small ones on a third. The
// two wait in the netpoller although others are active, and return when their messages are small.
// Promise: unet/large-messages-driver
func TestLargeMessagesWaitAlone(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			s, l := soloListener(t, network)
			c, peer := soloPair(t, s, l)
			d, peerOfD := soloPair(t, s, l)
			e, peerOfE := soloPair(t, s, l)
			all := func(n int) {
				exchangeLarge(t, c, peer, n)
				exchangeLarge(t, d, peerOfD, n)
				exchange(t, e, peerOfE)
			}
			for end := time.Now().Add(time.Minute); !isAlone(c) || !isAlone(d); all(16 << 10) {
				if time.Now().After(end) {
					t.Fatal("connections with large messages do not wait alone")
				}
			}
			before := s.Stats().Passes
			for range 200 {
				exchangeLarge(t, c, peer, 16<<10)
				exchangeLarge(t, d, peerOfD, 16<<10)
			}
			if passes := s.Stats().Passes - before; passes > 2 { // passes of earlier events
				t.Errorf("the driver made %d passes for connections that wait alone", passes)
			}
			for end := time.Now().Add(time.Minute); isAlone(c) || isAlone(d) || isAlone(e); all(100) {
				if time.Now().After(end) {
					t.Fatal("connections wait alone with small messages while others are active")
				}
			}
			for end := time.Now().Add(time.Minute); !isAlone(c); exchangeLarge(t, c, peer, 100) {
				if time.Now().After(end) {
					t.Fatal("a connection that is the only active one does not wait alone again")
				}
			}
		})
	}
}

// TestWhichReadsAreLarge tells a connection the lengths of reads. Those of a stream do not make it wait
// alone, nor do large messages while few descriptors are left.
func TestWhichReadsAreLarge(t *testing.T) {
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, _ := settled(t, s)
	reads := func(times, n, room int) {
		c.rd.turn.Lock()
		defer c.rd.turn.Unlock()
		for range times {
			c.noteSize(n, room)
		}
	}
	if reads(1000, largeFrom-1, streamFrom); isAlone(c) {
		t.Error("small messages make it wait alone")
	}
	if reads(1000, streamFrom, streamFrom); isAlone(c) {
		t.Error("a stream makes it wait alone")
	}
	if reads(-staysLong, largeFrom, streamFrom); isAlone(c) {
		t.Errorf("a stream with %d reads that do not fill the buffer makes it wait alone", -staysLong)
	}
	if reads(largeReads-1, largeFrom, largeFrom); isAlone(c) {
		t.Errorf("%d large messages make it wait alone", largeReads-1)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	lower := was
	lower.Cur = uint64(4 * c.fd.Int())
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lower); err != nil {
		t.Fatal(err)
	}
	reads(1, largeFrom, largeFrom)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if isAlone(c) {
		t.Error("it waits alone, with a second descriptor, although a quarter of the descriptors are in use")
	}
	if reads(largeReads, streamFrom, streamFrom+1); !isAlone(c) {
		t.Error("large messages do not make it wait alone")
	}
	if !c.recall() || !isAlone(c) {
		t.Error("other active connections recall a connection with large messages")
	}
	aside := c.alone
	reads(1, 1, 2)
	if reads(1, largeFrom, largeFrom+1); c.alone != aside {
		t.Error("it steps aside again after a small message")
	}
	if reads(largeReads-1, 1, 2); !isAlone(c) {
		t.Errorf("it is recalled after %d small messages", largeReads-1)
	}
	if reads(1, 1, 2); isAlone(c) {
		t.Errorf("it is not recalled after %d small messages", largeReads)
	}
	expire := func() {
		t.Helper()
		if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if reads(largeReads, largeFrom, largeFrom); !isAlone(c) {
		t.Error("large messages do not make it wait alone again")
	}
	if expire(); isAlone(c) {
		t.Error("a read that a deadline ended does not recall it")
	}
	if reads(-staysLong, largeFrom, largeFrom); isAlone(c) {
		t.Errorf("%d large messages after a read that a deadline ended make it wait alone", -staysLong)
	}
}

// awaitParked waits until a call waits in a direction of a socket, in that state. then, if it is not nil, is called
// with the socket's mutex.
func awaitParked(t *testing.T, s *sock, h *direction, state waitState, then func()) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		is := h.state == state
		if is && then != nil {
			then()
		}
		s.mu.Unlock()
		if is {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the call does not wait in state %d", state)
		}
	}
}

// isYoung reports whether package net has the socket of c.
func isYoung(c *TCPConn) bool { return c.ofNet() != nil }

// readByte reads a byte that peer sends.
func readByte(t *testing.T, c, peer net.Conn) {
	t.Helper()
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
}

// settled returns a connection that its loop watches, and its peer.
func settled(t *testing.T, s *System) (*TCPConn, net.Conn) {
	t.Helper()
	c, peer := connect(t, s)
	if err := c.settle(); err != nil {
		t.Fatal(err)
	}
	return c, peer
}

// waitingAlone returns a connection that waits alone, and its peer.
func waitingAlone(t *testing.T) (*TCPConn, net.Conn) {
	t.Helper()
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, peer := settled(t, s)
	c.rd.turn.Lock()
	c.leaveLoop()
	c.rd.turn.Unlock()
	return c, peer
}

// TestYoungConnectionsSettle reads from dialled connections. One that is active by itself remains with
// package net, two settle, and so does one beside a socket of the loop.
func TestYoungConnectionsSettle(t *testing.T) {
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, peer := connect(t, s)
	for range 5 * youngReads {
		if readByte(t, c, peer); !isYoung(c) {
			t.Fatal("the only active connection has settled")
		}
	}
	d, peerOfD := connect(t, s)
	for range 3 * youngReads {
		readByte(t, c, peer)
		readByte(t, d, peerOfD)
	}
	if isYoung(c) || isYoung(d) {
		t.Errorf("of two active connections some have not settled: %v, %v", isYoung(c), isYoung(d))
	}
	e, peerOfE := connect(t, s)
	for range youngReads {
		if readByte(t, e, peerOfE); !isYoung(e) {
			t.Fatal("a connection has settled too early")
		}
	}
	if readByte(t, e, peerOfE); isYoung(e) {
		t.Error("a connection beside others has not settled")
	}
	if n := s.Stats().Open; n != 3 {
		t.Errorf("%d connections are open, want 3", n)
	}
	for _, c := range []*TCPConn{c, d, e} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := s.Stats().Open; n != 0 {
		t.Errorf("%d connections are open after Close", n)
	}
}

// TestYoungConnectionsThatCannotBeWatched refuses a descriptor, and watching, to a connection that is
// to settle: it remains with package net until it can.
func TestYoungConnectionsThatCannotBeWatched(t *testing.T) {
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	settled(t, s)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	refuse := func(refused bool) {
		limit := before
		if refused {
			limit.Cur = 3
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	refusals := []func(bool){refuse}
	if sys.Faulty {
		refusals = append(refusals, func(refused bool) {
			sys.SetFaults(nil)
			if refused {
				sys.SetFaults(&sys.Faults{Call: func(name string, n int) (int, syscall.Errno) {
					if name == "epoll_ctl" && n == syscall.EPOLL_CTL_ADD { // no other operation of a driver needs memory
						return 0, syscall.ENOSPC
					}
					return n, 0
				}})
			}
		})
	}
	for i, refuse := range refusals {
		c, peer := connect(t, s)
		file, err := os.Open("doc.go") // which begins with "// SPDX"
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		defer refuse(false)
		refuse(true)
		for range 3 * youngReads {
			readByte(t, c, peer)
		}
		if !isYoung(c) {
			t.Errorf("refusal %d: the connection has settled", i)
		}
		sent, err := c.ReadFrom(&io.LimitedReader{R: file, N: 4})
		if err != nil || sent != 4 {
			t.Errorf("refusal %d: a file: %d, %v", i, sent, err)
		}
		if n, err := c.Writev(&net.Buffers{[]byte("ab"), []byte("cd")}); err != nil || n != 4 {
			t.Errorf("refusal %d: Writev: %d, %v", i, n, err)
		}
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Write(func(fd uintptr) bool { _, err := syscall.Write(int(fd), []byte("efgh")); return err == nil }); err != nil {
			t.Errorf("refusal %d: RawConn.Write: %v", i, err)
		}
		got := make([]byte, 12)
		if _, err := io.ReadFull(peer, got); err != nil || string(got) != "// Sabcdefgh" {
			t.Errorf("refusal %d: arrived: %q, %v", i, got, err)
		}
		refuse(false)
		for range youngReads + 1 {
			readByte(t, c, peer)
		}
		if isYoung(c) {
			t.Errorf("refusal %d: the connection has not settled afterwards", i)
		}
	}
}

// TestAloneConnectionsThatCannotBeWatched refuses to watch a connection that waits alone and must
// return to its loop: its calls go on waiting alone.
func TestAloneConnectionsThatCannotBeWatched(t *testing.T) {
	c, peer := waitingAlone(t)
	if errno := c.loop.poll.Add(c.fd.Int(), 0, 0); errno != 0 { // the loop's Add fails: EEXIST
		t.Fatal(errno)
	}
	if !c.recall() {
		t.Fatal("the connection was not recalled")
	}
	got := make(chan error, 1)
	go func() { _, err := c.Read(make([]byte, 8)); got <- err }()
	awaitParked(t, &c.sock, &c.rd, parkedAlone, nil)
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestSettleDuringCalls lets a connection settle while it reads and writes: both calls go on, and
// deadlines of before hold.
func TestSettleDuringCalls(t *testing.T) {
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"data", "deadline", "past deadline", "close"} {
		t.Run(end, func(t *testing.T) {
			c, peer := connect(t, s)
			data := make([]byte, 16<<20)
			for i := range data {
				data[i] = byte(i * 7 >> 3)
			}
			if end == "deadline" {
				if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
					t.Fatal(err)
				}
			}
			read, written := make(chan error, 1), make(chan error, 1)
			p := make([]byte, 8)
			go func() { _, err := io.ReadFull(c, p); read <- err }()
			go func() {
				n, err := c.Write(data)
				if err == nil && n != len(data) {
					err = io.ErrShortWrite
				}
				written <- err
			}()
			part := make([]byte, 1<<20)
			if _, err := io.ReadFull(peer, part); err != nil { // the Write is in progress
				t.Fatal(err)
			}
			if !isYoung(c) {
				t.Fatal("the connection has settled by itself")
			}
			if err := c.settle(); err != nil || isYoung(c) {
				t.Fatal("the connection does not settle", err)
			}
			rest := make([]byte, len(data)-len(part))
			if end != "close" {
				if _, err := io.ReadFull(peer, rest); err != nil {
					t.Fatal(err)
				}
				if err := <-written; err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(append(part, rest...), data) {
					t.Error("other data arrived")
				}
			}
			var want error
			switch end {
			case "data":
				if _, err := peer.Write([]byte("12345678")); err != nil {
					t.Fatal(err)
				}
			case "deadline":
				want = os.ErrDeadlineExceeded
			case "past deadline":
				want = os.ErrDeadlineExceeded
				if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
					t.Fatal(err)
				}
			case "close":
				want = net.ErrClosed
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				if err := <-written; !errors.Is(err, want) {
					t.Error(err)
				}
			}
			if err := <-read; !errors.Is(err, want) {
				t.Errorf("Read: %v, want %v", err, want)
			}
			if end == "data" && string(p) != "12345678" {
				t.Errorf("received %q", p)
			}
		})
	}
}

// TestYoungCallsEnd ends calls of a young connection, by a deadline and by Close, and drops one
// without Close.
func TestYoungCallsEnd(t *testing.T) {
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, peer := connect(t, s)
	read := func() chan error {
		ch := make(chan error, 1)
		go func() { _, err := c.Read(make([]byte, 8)); ch <- err }()
		return ch
	}
	ended := read()
	for _, d := range []time.Duration{20 * time.Millisecond, -1} {
		if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
			t.Fatal(err)
		}
		err := <-ended
		if !errors.Is(err, os.ErrDeadlineExceeded) || err.Error() != c.opError("read", os.ErrDeadlineExceeded).Error() {
			t.Errorf("Read after its deadline: %v", err)
		}
		ended = read()
	}
	<-ended
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	ended = read()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{<-ended, <-read(), c.Close(), c.SetNoDelay(true)} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("a call of a closed connection: %v", err)
		}
	}
	if _, err := peer.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the peer of a closed connection: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := s.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	dropped, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer dropped.Close()
	gone := make(chan error, 1)
	go func() { _, err := dropped.Read(make([]byte, 1)); gone <- err }()
	for end := time.Now().Add(ringtest.Patience); len(gone) == 0 || s.Stats().Open > 0; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("a dropped connection is still open: %d, %d", len(gone), s.Stats().Open)
		}
	}
	if err := <-gone; err != io.EOF {
		t.Errorf("the peer of a dropped connection: %v", err)
	}
}

// TestAloneWaitsEnd ends the calls of a connection that waits alone: by a deadline, by
// Close, by the end of the stream, and by the activity of other connections, in both
// directions at once.
// Promise: unet/calls-connection-waits
func TestAloneWaitsEnd(t *testing.T) {
	c, peer := waitingAlone(t)
	errs := func(f func([]byte) (int, error), p []byte) chan error {
		ch := make(chan error, 1)
		go func() { _, err := f(p); ch <- err }()
		return ch
	}
	big := make([]byte, 64<<20)
	reads, writes := errs(c.Read, make([]byte, 8)), errs(c.Write, big)
	awaitParked(t, &c.sock, &c.rd, parkedAlone, nil)
	awaitParked(t, &c.sock, &c.wr, parkedAlone, nil)
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-reads; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read after its deadline: %v", err)
	}
	if err := c.alone.raw.Read(func(uintptr) bool { return true }); err != nil {
		t.Errorf("the deadline that ended the wait remains: %v", err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	reads = errs(c.Read, make([]byte, 8))
	awaitParked(t, &c.sock, &c.rd, parkedAlone, nil)
	awaitParked(t, &c.sock, &c.wr, parkedAlone, nil) // the read deadline does not end it

	c.mu.Lock()
	c.alone.waits = 0
	c.mu.Unlock()
	if !c.recall() {
		t.Fatal("the connection still waits alone")
	}
	awaitParked(t, &c.sock, &c.rd, parked, nil)
	awaitParked(t, &c.sock, &c.wr, parked, nil)
	if err := c.SetWriteDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-writes; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write after its deadline: %v", err)
	}
	if err := c.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	writes = errs(c.Write, big)
	awaitParked(t, &c.sock, &c.wr, parked, nil)
	c.leaveLoop() // while both calls wait for the loop
	awaitParked(t, &c.sock, &c.rd, parkedAlone, nil)
	awaitParked(t, &c.sock, &c.wr, parkedAlone, nil)
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-reads; err != nil {
		t.Error(err)
	}
	reads = errs(c.Read, make([]byte, 8))
	awaitParked(t, &c.sock, &c.rd, parkedAlone, nil)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, ch := range []chan error{reads, writes} {
		if err := <-ch; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a call that waited alone when the connection was closed: %v", err)
		}
	}
}

// TestCallsHelpAStarvedDriver stops the driver and lets two connections exchange messages:
// each call that is about to wait does the driver's work.
// Promise: unet/connections-progress-goroutines
func TestCallsHelpAStarvedDriver(t *testing.T) {
	for _, mode := range []Mode{ModePlain, ModeRing} {
		t.Run(mode.String(), func(t *testing.T) {
			s, err := NewSystem(Options{Mode: mode})
			if err != nil {
				t.Skipf("needs io_uring: %v", err)
			}
			l, err := s.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			b, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { a.Close(); b.Close(); l.Close() }()
			driven := a.(*TCPConn).loop
			driven.stopping.Store(true)
			_ = driven.sleeper.SetDeadline(time.Unix(1, 0)) // wakes the driver
			driven.done.Wait()
			driven.starved.Store(true)
			go func() { _, _ = io.Copy(struct{ io.Writer }{b}, struct{ io.Reader }{b}) }()
			done := make(chan error, 1)
			go func() {
				p := make([]byte, 8)
				for range 100 {
					if _, err := a.Write(p); err != nil {
						done <- err
						return
					}
					if _, err := io.ReadFull(a, p); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("no call does the work of the driver")
			}
		})
	}
}

// TestStarvedLoops reports sequences of short and long yields to the loop.
// Promise: unet/connections-progress-goroutines
func TestStarvedLoops(t *testing.T) {
	const short, long = time.Microsecond, 2 * ringloop.LongYield
	l, now := &loop{}, time.Now()
	times := func(n int, d time.Duration, want bool) {
		t.Helper()
		for i := range n {
			now = now.Add(d)
			if l.yielded(now, d); l.starved.Load() != want {
				t.Fatalf("starved is %t after %d of %d times %v", !want, i+1, n, d)
			}
		}
	}
	for range 3 {
		times(20, short, false)
		times(longYields-1, long, false)
		times(8, short, false) // forgotten
		times(1, long, false)
		times(2, short, false)
		times(1, long, false)
		times(2, short, false)
		times(1, long, true) // between short ones
		times(100, short, true)
		times(1, long, true)
		times(100, short, true)
		now = now.Add(starvedSpan)
		times(50, short, false)
		times(1, long, true) // a single one, soon after
		now = now.Add(starvedSpan)
		times(1, short, false)
		now = now.Add(againSpan)
	}
}

// TestDriverWaitsForManyReaders checks that a driver waits for readers that it woke and
// that have not run, until two are left.
func TestDriverWaitsForManyReaders(t *testing.T) {
	const left = 2
	l := &loop{running: make(chan struct{}, 1), mayBeLate: left}
	l.starting.Store(1 + fewEvents)
	l.waitForReaders() // waiting for a few readers does not pay
	for range fewEvents {
		l.readerRuns()
	}
	l.starting.Add(fewEvents + 1)
	done := make(chan struct{})
	go func() { l.waitForReaders(); close(done) }()
	for l.starting.Load() != fewEvents+1-left { // the driver has yielded
		time.Sleep(time.Millisecond)
	}
	for range fewEvents - left {
		l.readerRuns()
	}
	select {
	case <-done:
		t.Fatal("the driver continued although more readers had not run")
	case <-time.After(10 * time.Millisecond):
	}
	l.readerRuns()
	<-done
	if n := l.starting.Load(); n != 1+left {
		t.Errorf("%d readers are counted afterwards, want %d", n-1, left)
	}
	for range left {
		l.readerRuns()
	}
	l.waitForReaders()
	if n := l.starting.Load(); n != 1 {
		t.Errorf("%d readers are counted at the end, want 0", n-1)
	}
}

// TestRestrictedRing tries operations that a restricted ring refuses; TestStress has the
// operations that it must not refuse.
// Promise: unet/options-restrict-ring
func TestRestrictedRing(t *testing.T) {
	ringtest.NeedKernel(t, "RESTRICTIONS", "5.10")
	s, err := NewSystem(Options{Mode: ModeRing, Restrict: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{system: s, useRing: true}
	if !l.openRing() {
		t.Fatal("no ring")
	}
	defer l.ring.Close()
	ringtest.WantRestricted(t, l.ring, uring.OpRecv)
}

// TestDriversOutliveTheLastSocket closes the last socket and opens another: the same
// drivers serve it. Without another socket they stop.
// Promise: unet/drivers-default-system
func TestDriversOutliveTheLastSocket(t *testing.T) {
	s, err := NewSystem(Options{Mode: ModePlain})
	if err != nil {
		t.Fatal(err)
	}
	s.linger = time.Hour // the end of the test closes the last socket
	loops := func() []*loop {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.loops
	}
	once := func() *loop {
		l, err := s.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return loops()[0]
	}
	if first, second := once(), once(); first != second {
		t.Error("a driver was started for the second socket")
	}
	if len(loops()) == 0 {
		t.Error("the drivers ended with the last socket")
	}
	s.stopIdle() // too early for their end
	if len(loops()) == 0 {
		t.Error("the drivers ended too early")
	}
	s.linger = time.Millisecond
	for end := time.Now().Add(time.Minute); len(loops()) > 0; s.stopIdle() {
		if time.Now().After(end) {
			t.Fatal("the drivers do not end")
		}
		time.Sleep(time.Millisecond)
	}

	ringtest.EndsForDetectors(t, func() {
		l, err := Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}, func() bool {
		s := defaultSystem()
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.loops) == 0
	})
}

// TestSpuriousEventWhileLeaving has the loop receive for a reader, and get nothing, while the
// other direction makes the socket wait alone. The loop does not watch the socket any more, so the
// reader must not wait for the loop.
// Promise: unet/calls-connection-waits
func TestSpuriousEventWhileLeaving(t *testing.T) {
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, peer := settled(t, s)
	read := make(chan error, 1)
	go func() { _, err := c.Read(make([]byte, 1)); read <- err }()
	awaitParked(t, &c.sock, &c.rd, parked, func() { c.rd.state = taken }) // as by the loop
	c.wr.turn.Lock()
	c.leaveLoop()
	c.wr.turn.Unlock()
	c.received(c.loop, 0, syscall.EAGAIN)
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the Read does not get what has arrived")
	}
}
