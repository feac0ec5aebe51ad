// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"io"
	"net"
	"os"
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
		c, peer := connect(t, s)
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

// TestSingleConnectionWaitsAlone exchanges messages on one connection, which does not need
// the driver. When another connection is as active, both return to the driver. A third
// connection that is less active has no effect on one that waits alone.
// Promise: unet/active-connection-driver
func TestSingleConnectionWaitsAlone(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
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

// TestYoungConnectionsWaitAlone dials beside another connection: the first waits do not need the
// driver, later ones do. Only some connections may wait so at a time.
func TestYoungConnectionsWaitAlone(t *testing.T) {
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := connect(t, s)
	young := func() int {
		first.loop.table.mu.Lock()
		defer first.loop.table.mu.Unlock()
		return first.loop.table.young
	}
	c, peer := connect(t, s)
	for i := range youngWaits + 2 {
		read := make(chan error, 1)
		go func() { _, err := c.Read(make([]byte, 8)); read <- err }()
		want := parkedAlone
		if i >= youngWaits {
			want = parked
		}
		awaitParked(t, &c.sock, &c.rd, want, nil)
		if _, err := peer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil {
			t.Fatal(err)
		}
	}
	if n := young(); n != 0 || isAlone(c) {
		t.Errorf("%d connections are young after %d waits; alone: %v", n, youngWaits+2, isAlone(c))
	}
	var all []*TCPConn
	for i := range maxYoung + 1 {
		c, _ := connect(t, s)
		if all = append(all, c); isAlone(c) != (i < maxYoung) {
			t.Errorf("connection %d waits alone: %v", i, isAlone(c))
		}
	}
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := young(); n != 0 {
		t.Errorf("%d closed connections are young", n)
	}
}

// TestYoungConnectionsThatCannotBeWatched refuses to watch a connection that must return to its
// loop: its calls go on waiting alone until the loop can watch it.
func TestYoungConnectionsThatCannotBeWatched(t *testing.T) {
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := connect(t, s)
	for _, starved := range []bool{false, true} {
		c, peer := connect(t, s)
		read := func(state waitState) {
			t.Helper()
			got := make(chan error, 1)
			go func() { _, err := c.Read(make([]byte, 8)); got <- err }()
			awaitParked(t, &c.sock, &c.rd, state, nil)
			if _, err := peer.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Fatal(err)
			}
		}
		poll, fd := first.loop.poll, c.fd.Int()
		if errno := poll.Add(fd, 0, 0); errno != 0 { // the loop's Add fails: EEXIST
			t.Fatal(errno)
		}
		first.loop.starved.Store(starved)
		for range 2*youngWaits + 2 {
			read(parkedAlone)
		}
		first.loop.starved.Store(false)
		if errno := poll.Remove(fd); errno != 0 {
			t.Fatal(errno)
		}
		c.mu.Lock()
		c.alone.waits = youngWaits
		c.mu.Unlock()
		read(parked)
		if isAlone(c) {
			t.Error("the connection is alone although the loop watches it")
		}
	}
}

// TestAloneWaitsEnd ends the calls of a connection that waits alone: by a deadline, by
// Close, by the end of the stream, and by the activity of other connections, in both
// directions at once.
// Promise: unet/calls-connection-waits
func TestAloneWaitsEnd(t *testing.T) {
	s, err := NewSystem(Options{Mode: ModePlain, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, peer := connect(t, s)
	if !isAlone(c) {
		t.Fatal("the first connection of a System does not wait alone")
	}
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
	connect(t, s) // the first connection waits alone
	c, peer := connect(t, s)
	c.alone.waits = youngWaits // the next wait is in the loop
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
