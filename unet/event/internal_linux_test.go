// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
	"github.com/ringside-io/ringside/watch"
)

// onLoops runs f on each loop of a server and waits for it.
func (s *Server) onLoops(t *testing.T, f func(l *loop)) {
	t.Helper()
	r, ok := s.engine.(*loops)
	if !ok {
		return
	}
	for _, d := range r.all {
		l, done := d.base(), make(chan struct{})
		l.post(func() { f(l); close(done) })
		receive(t, "end of the function on the loop", done)
	}
}

// smallBuffers makes the system buffer few bytes for accepted connections.
func smallBuffers() *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = errors.Join(syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10),
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 64<<10))
		}), err)
	}}
}

// unsent returns how many bytes a TCP connection holds until the peer has room for them. The others
// have been sent: on the loopback they have arrived.
func unsent(t *testing.T, c net.Conn) (n int) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	closed := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) })
	if errors.Is(closed, net.ErrClosed) {
		return 0 // the reader has seen the end
	}
	if err = errors.Join(closed, err); err != nil {
		t.Fatal(err)
	}
	return n
}

// noneLeft waits until all slots and buffers are free, except those of one idle connection. A
// connection that its client has reset may not have been accepted yet.
func (s *Server) noneLeft(t *testing.T) {
	t.Helper()
	if _, ok := s.engine.(*loops); !ok {
		return
	}
	var state string
	defer func() {
		if t.Failed() {
			t.Log(state)
		}
	}()
	await(t, "the slots and buffers are free", func() bool {
		slots, whole := 0, true
		state = ""
		s.onLoops(t, func(l *loop) {
			slots += len(l.conns) - len(l.free)
			r, ok := l.d.(*ringLoop)
			if !ok || features.HaveRegister(uring.OpRegisterPBufStatus) != nil {
				return
			}
			if r.unpublished {
				r.bufs.Publish()
				r.unpublished = false
			}
			n, err := r.bufs.Available()
			state += fmt.Sprintf("%d of %d buffers are available, %v; ", n, r.bufs.Len(), err)
			whole = whole && n == r.bufs.Len() && err == nil
		})
		state += fmt.Sprintf("%d slots are taken, want 1", slots)
		return slots == 1 && whole
	})
}

// TestLooksForBulk counts the connections that send much, also after they have closed, and how often
// a loop looks for more before it sleeps.
func TestLooksForBulk(t *testing.T) {
	needRing(t)
	const size = 200 << 10
	opened, all, got := make(chan *Conn, 1), make(chan bool, 1), 0
	s := start(t, Handler{
		OnOpen: func(c *Conn) { c.PauseRead(); opened <- c },
		OnData: func(_ *Conn, p []byte) {
			if got += len(p); got == size {
				all <- true
			}
		},
	}, Options{Mode: ModeRing, Loops: 1})
	bulk := func() (n int) {
		s.onLoops(t, func(l *loop) { n = l.d.(*ringLoop).bulk })
		return n
	}
	c := dial(t, s)
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	receive(t, "OnOpen", opened).ResumeRead()
	receive(t, "all", all)
	if n := bulk(); n != 1 {
		t.Errorf("%d connections send much, want 1", n)
	}
	_ = c.Close()
	await(t, "no connection sends much", func() bool { return bulk() == 0 })

	s.onLoops(t, func(l *loop) {
		r := l.d.(*ringLoop)
		r.vain, r.skip = 0, 0
		for _, want := range []int{1, 3, 7, 15, 31, 63, longestSkip, longestSkip} {
			if r.spin() || r.skip != want {
				t.Errorf("after a look in vain the loop sleeps %d times at once, want %d", r.skip, want)
			}
		}
		r.hasInput.Store(true)
		if !r.spin() || r.vain != 0 {
			t.Error("a look does not notice input")
		}
	})
}

// TestLoopMovesToAnotherThread repeatedly makes the loop believe that it runs on another
// thread than the one that armed the receives.
func TestLoopMovesToAnotherThread(t *testing.T) {
	needRing(t)
	s := start(t, echoes(), Options{Mode: ModeRing, Loops: 1})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 6 {
		wg.Go(func() {
			c := dial(t, s)
			for {
				select {
				case <-stop:
					return
				default:
					exchange(t, c, random(3000, uint64(i)))
				}
			}
		})
	}
	// An iteration takes long where the clients share one processor with the loop.
	before := s.Stats().Rearms
	for end := time.Now().Add(testPatience / 2); s.Stats().Rearms <= before+50; {
		s.onLoops(t, func(l *loop) {
			for _, c := range l.conns {
				if c != nil {
					c.bstate.tid = -1
				}
			}
		})
		if time.Now().After(end) {
			t.Errorf("receives were armed again %d times", s.Stats().Rearms-before)
			break
		}
	}
	close(stop)
	wg.Wait()
}

// TestNoDescriptorsLeft runs a child without descriptors for connections.
func TestNoDescriptorsLeft(t *testing.T) {
	if os.Getenv(envChild) != "" {
		// The kernel uses the limit at the time when an accept is armed.
		limit := syscall.Rlimit{Cur: 200, Max: 200}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		overModes(t, noDescriptorsLeft)
		overModes(t, backlogIsServed)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNoDescriptorsLeft$", "-test.v", fmt.Sprintf("-test.short=%v", testing.Short()))
	cmd.Env = append(os.Environ(), envChild+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// useUp opens descriptors until none are left, and returns a function that closes them.
func useUp(t *testing.T) (release func()) {
	t.Helper()
	var fds []int
	for {
		fd, err := syscall.Dup(0)
		if err == syscall.EMFILE {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
	}
}

func noDescriptorsLeft(t *testing.T, o Options) {
	s := start(t, echoes(), o)
	first := dial(t, s)
	exchange(t, first, []byte("before"))
	const conns = 10
	var fds [conns]int
	for i := range fds {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds[i] = fd
	}
	release := useUp(t)
	sa := &syscall.SockaddrInet4{Port: s.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	for _, fd := range fds {
		if err := syscall.Connect(fd, sa); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "accepting was tried again", func() bool { return s.Stats().AcceptRetries >= 3 })
	begin, retries := time.Now(), s.Stats().AcceptRetries
	exchange(t, first, []byte("still served"))
	time.Sleep(100 * time.Millisecond) // a loop that spins has a high count
	if n, d := s.Stats().AcceptRetries-retries, time.Since(begin); n > uint64(d/firstPause)*4+4 {
		t.Errorf("accepting was tried %d times in %v", n, d)
	}
	release()
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		if _, err := f.Write([]byte("after")); err != nil {
			t.Error(err)
		}
		p := make([]byte, 5)
		if n, err := f.Read(p); string(p[:n]) != "after" {
			t.Errorf("%q, %v", p[:n], err)
		}
		_ = f.Close()
	}
}

// backlogIsServed shuts a server down while connections wait that it could not accept
// because it had no descriptors.
func backlogIsServed(t *testing.T, o Options) {
	s := start(t, echoes(), o)
	exchange(t, dial(t, s), []byte("before"))
	var files [5]*os.File
	for i := range files {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = os.NewFile(uintptr(fd), "socket")
	}
	release := useUp(t)
	for _, f := range files {
		sa := &syscall.SockaddrInet4{Port: s.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
		if err := syscall.Connect(int(f.Fd()), sa); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
	}
	// By now the server pauses for so long that it does not try again in time.
	await(t, "accepting was tried again", func() bool { return s.Stats().AcceptRetries >= 5 })
	release()
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(ctx) }()
	for _, f := range files {
		p := make([]byte, 10)
		if n, err := f.Read(p); string(p[:n]) != "late" {
			t.Errorf("%q, %v", p[:n], err)
		}
		_ = f.Close()
	}
	cancel()
	<-ended // The first connection stays open: it is correct that the server gave it up.
}

// TestBrokenRing ends the connections of a loop whose ring has failed.
// Promise: unet/event/done-err-report
// Promise: unet/event/right-result-error
func TestBrokenRing(t *testing.T) {
	needRing(t)
	for name, w := range map[string]wait{"auto": waitAuto, "netpoller": waitNetpoller} {
		t.Run(name, func(t *testing.T) { testBrokenRing(t, w) })
	}
}

func testBrokenRing(t *testing.T, w wait) {
	closed := make(chan error, 1)
	h := echoes()
	h.OnClose = func(_ *Conn, err error) { closed <- err }
	s := start(t, h, Options{Mode: ModeRing, Loops: 1, wait: w})
	c := dial(t, s)
	exchange(t, c, []byte("x"))
	broken := errors.New("broken")
	l := s.engine.(*loops).all[0].(*ringLoop)
	if err := s.Err(); err != nil {
		t.Errorf("Err of a working server: %v", err)
	}
	l.post(func() { l.fail(broken) })
	if err := receive(t, "OnClose", closed); !errors.Is(err, broken) {
		t.Errorf("OnClose got %v", err)
	}
	receive(t, "end of the server", s.Done())
	if err := s.Err(); !errors.Is(err, broken) {
		t.Errorf("Err is %v", err)
	}
	await(t, "the connection is closed", func() bool { return s.Stats().Open == 0 })
	if err := s.Shutdown(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Shutdown returned %v", err)
	}
	if err := s.Close(); !errors.Is(err, broken) {
		t.Errorf("Close returned %v", err)
	}
}

// TestOneLoopFails lets one of three loops fail: the server reports the error, and its
// other loops continue.
// Promise: unet/event/done-err-report
func TestOneLoopFails(t *testing.T) {
	listen := map[string]func(Options) (*Server, error){
		"tcp":  func(o Options) (*Server, error) { return Listen("tcp", "127.0.0.1:0", echoes(), o) },
		"unix": func(o Options) (*Server, error) { return Listen("unix", socketPath(t), echoes(), o) },
		"given": func(o Options) (*Server, error) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			return New(ln, echoes(), o)
		},
	}
	for _, mode := range []Mode{ModeRing, ModeEpoll} {
		for name, listen := range listen {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				if mode == ModeRing {
					needRing(t)
				}
				logger, await := ringtest.Logger(t)
				s, err := listen(Options{Mode: mode, Loops: 3, Logger: logger})
				if err != nil {
					t.Fatal(err)
				}
				broken := errors.New("broken")
				s.breakLoop(1, broken)
				receive(t, "notice of the failure", s.Done())
				if name != "given" {
					await("backend=" + mode.String())
				}
				await("error=broken")
				for i := range 20 {
					exchange(t, dial(t, s), random(1000, uint64(i)))
				}
				enrollOnOtherLoops(t, s)
				if err := s.Close(); !errors.Is(err, broken) || !strings.Contains(err.Error(), "loop 2 of 3") {
					t.Errorf("Close returned %v", err)
				}
			})
		}
	}
}

// breakLoop makes a loop fail.
func (s *Server) breakLoop(i int, err error) {
	switch d := s.engine.(*loops).all[i].(type) {
	case *ringLoop:
		d.post(func() { d.fail(err) })
	case *pollLoop:
		d.post(func() { d.fail(err); d.w.Stop() })
	}
}

// TestTimersOfClosedConnections checks that no timer of a closed connection is left.
// Promise: unet/event/closed-connection-leaves
func TestTimersOfClosedConnections(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		h := echoes()
		h.OnOpen = func(c *Conn) {
			c.SetTimer(time.Hour)
			c.SetTimer(time.Minute)
			c.SetTimer(2 * time.Hour)
		}
		s := start(t, h, o)
		for i := range 50 {
			c := dial(t, s)
			exchange(t, c, random(10, uint64(i)))
			_ = c.Close()
		}
		stays := dial(t, s)
		exchange(t, stays, random(10, 1))
		await(t, "the others have closed", func() bool { return s.Stats().Open == 1 })
		set := 0
		s.onLoops(t, func(l *loop) { set += len(l.timers) })
		if _, ok := s.engine.(*loops); ok && set != 1 {
			t.Errorf("%d timers are set for one connection", set)
		}
	})
}

// TestTimerHeap compares the heap with a list.
// Promise: unet/event/closed-connection-leaves
func TestTimerHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h timerHeap
	conns := make([]*Conn, 200)
	for i := range conns {
		conns[i] = &Conn{}
	}
	want := map[*Conn]time.Time{}
	base := time.Now()
	for range 20_000 {
		c := conns[r.IntN(len(conns))]
		switch r.IntN(5) {
		case 0, 1, 2:
			at := base.Add(time.Duration(r.IntN(500)))
			h.set(c, at)
			want[c] = at
		case 3:
			h.remove(c)
			delete(want, c)
		case 4:
			if len(h) == 0 {
				break
			}
			first := h[0]
			for _, at := range want {
				if at.Before(first.at) {
					t.Fatalf("%v is the first entry, want %v", first.at, at)
				}
			}
			h.remove(first.c)
			delete(want, first.c)
		}
		if len(h) != len(want) {
			t.Fatalf("%d entries, want %d", len(h), len(want))
		}
	}
	for i, e := range h {
		if int(e.c.bstate.timerAt) != i+1 || !e.at.Equal(want[e.c]) {
			t.Fatalf("entry %d: %v at %d, want %v", i, e.at, e.c.bstate.timerAt, want[e.c])
		}
	}
}

// TestOperationsEndUnasked cancels the operations of a loop from outside, as the kernel
// does when a thread exits.
// Promise: unet/event/right-result-error
func TestOperationsEndUnasked(t *testing.T) {
	needRing(t)
	const total = 8 << 20
	conns := make(chan *Conn, 3)
	h := echoes()
	h.OnOpen = func(c *Conn) { conns <- c }
	s := start(t, h, Options{Mode: ModeRing, Loops: 1, WriteLimit: total})
	first := dial(t, s)
	c := receive(t, "OnOpen", conns)
	want := random(total, 1)
	if _, err := c.Write(want); err != nil { // The peer does not read yet.
		t.Fatal(err)
	}
	rearms := s.Stats().Rearms
	for range 20 {
		s.onLoops(t, func(l *loop) {
			for _, target := range []uint64{c.bstate.tag(kindRecv), c.bstate.tag(kindSend), tag(kindAccept, noSlot, 0)} {
				l.d.(*ringLoop).sqe().Cancel(target).SetUserData(tag(kindCancel, noSlot, 0))
			}
		})
	}
	await(t, "the receive was armed again", func() bool { return s.Stats().Rearms > rearms })
	exchange(t, dial(t, s), random(10_000, 2))
	got := make([]byte, total)
	if n, err := io.ReadFull(first, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, as written %v: %v", n, total, bytes.Equal(got, want), err)
	}
	exchange(t, first, random(10_000, 3))
}

// TestCancellationsArePaced completes the cancellations of a receive and of a connection
// with EALREADY: the loop repeats them after a pause, not in each iteration.
// Promise: unet/event/cancellation-kernel-answers
func TestCancellationsArePaced(t *testing.T) {
	needRing(t)
	opened := make(chan struct{})
	s := start(t, Handler{OnOpen: func(*Conn) { close(opened) }}, Options{Mode: ModeRing, Loops: 1})
	dial(t, s)
	receive(t, "OnOpen", opened)
	paced := func() (canceling, ending bool) {
		s.onLoops(t, func(l *loop) { canceling, ending = l.conns[0].bstate.canceling, l.conns[0].bstate.ending })
		return canceling, ending
	}
	s.onLoops(t, func(l *loop) {
		r, k := l.d.(*ringLoop), &l.conns[0].bstate
		k.canceling, k.ending = true, true
		begin := time.Now()
		for _, kind := range []int{kindCancel, kindCancelAll} {
			r.canceled(uring.CQE{UserData: k.tag(kind), Res: -int32(syscall.EALREADY)})
		}
		if !k.canceling || !k.ending || len(l.delayed) != 2 {
			t.Errorf("repeated at once: canceling %v, ending %v, %d delayed", k.canceling, k.ending, len(l.delayed))
		}
		if l.delayAt.Before(begin.Add(retryPause)) {
			t.Errorf("repeated after %v", l.delayAt.Sub(begin))
		}
	})
	await(t, "the time to repeat the cancellations has come", func() bool {
		canceling, ending := paced()
		return !canceling && !ending
	})
}

// TestPacketSegmentsRefused sends segments on a socket without checksums, for which the
// kernel refuses to cut messages: the datagrams are sent one by one, in order.
// Promise: unet/event/segments-loops-datagrams
func TestPacketSegmentsRefused(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		got, calls := make(chan []byte, 1000), new(atomic.Int32)
		in := startPackets(t, "udp4", "127.0.0.1:0", gatherer(got, calls, false), o)
		o.ListenConfig = &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			if ctlErr := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, unix.SO_NO_CHECK, 1) }); ctlErr != nil {
				return ctlErr
			}
			return err
		}}
		to, data := peerOf(in.LocalAddr()), random(20_500, 1)
		write := func(c *PacketConn) {
			for _, p := range [][]byte{data[:10_000], data[10_000:11_000], data[11_000:]} {
				if n, err := c.WriteSegments(p, 1000, to); n != len(p) || err != nil {
					t.Errorf("WriteSegments: %d, %v", n, err)
				}
			}
		}
		out := startPackets(t, "udp4", "127.0.0.1:0", PacketHandler{
			OnPacket: func(c *PacketConn, _ Peer, _ []byte) { write(c) },
			OnError:  func(_ *PacketConn, _ Peer, err error) { t.Error(err) },
		}, o)
		write(out)
		receiveSegments(t, got, data, 1000)
		if _, err := out.WriteTo([]byte("go"), peerOf(out.LocalAddr())); err != nil {
			t.Fatal(err)
		}
		receiveSegments(t, got, data, 1000)
		await(t, "nothing is pending, and the Stats count 43 datagrams", func() bool {
			return out.Pending() == 0 && out.Server().Stats().PacketsSent == 43
		})
	})
}

// An idle connection takes the memory of its Conn and little else. The allocator rounds a
// larger Conn up to 352 bytes.
func TestConnSize(t *testing.T) {
	if size := unsafe.Sizeof(Conn{}); unsafe.Sizeof(uintptr(0)) == 8 && size > 320 {
		t.Errorf("a Conn has %d bytes", size)
	}
}

// TestRefusedSocketsStayUsable enrolls sockets while no loop can serve them. They must be
// unchanged: a read of a blocking socket would not end by deadlines or Close.
// Promise: unet/event/enroll-new-take
func TestRefusedSocketsStayUsable(t *testing.T) {
	for _, mode := range []Mode{ModeRing, ModeEpoll} {
		t.Run(mode.String(), func(t *testing.T) {
			if mode == ModeRing {
				needRing(t)
			}
			s, err := Listen("tcp", "127.0.0.1:0", echoes(), Options{Mode: mode, Loops: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := dial(t, s)
			broken := errors.New("broken")
			s.breakLoop(0, broken)
			receive(t, "notice of the failure", s.Done())
			if _, err := s.Enroll(c, ConnOptions{}); err == nil {
				t.Error("a server without loops has enrolled a connection")
			}
			pc := packetClient(t, "udp", "127.0.0.1:0")
			if _, err := s.EnrollPacket(pc, PacketHandler{}); !errors.Is(err, broken) {
				t.Errorf("EnrollPacket returned %v", err)
			}
			for _, socket := range []any{c, pc} {
				raw, err := socket.(syscall.Conn).SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				_ = raw.Control(func(fd uintptr) {
					if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
						t.Errorf("%T: a refused socket is in blocking mode (%v)", socket, err)
					}
				})
			}
		})
	}
}

// enrollOnOtherLoops enrolls more sockets than a server with a failed loop has loops.
func enrollOnOtherLoops(t *testing.T, s *Server) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for i := range 6 {
		if _, err := s.Dial(t.Context(), "tcp", ln.Addr().String(), ConnOptions{}); err != nil {
			t.Fatalf("dial %d: %v", i, err)
		}
		peer, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = peer.SetDeadline(time.Now().Add(testPatience))
		exchange(t, peer, random(1000, uint64(i)))
		_ = peer.Close()
		if _, err := s.EnrollPacket(packetClient(t, "udp", "127.0.0.1:0"), PacketHandler{}); err != nil {
			t.Fatalf("datagram socket %d: %v", i, err)
		}
		pc, err := s.ListenPacket("udp", "127.0.0.1:0", echoPackets(t))
		if err != nil {
			t.Fatalf("sockets of all loops: %v", err)
		}
		for range 3 { // the kernel chooses a socket for each client
			client := packetClient(t, "udp", "127.0.0.1:0")
			if _, err := client.WriteTo([]byte("x"), pc.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			if n, _, err := client.ReadFrom(make([]byte, 2)); n != 1 || err != nil {
				t.Errorf("an echo of a datagram: %d, %v", n, err)
			}
		}
	}
}

// TestLentMemoryOfABrokenRing lends memory, breaks the ring, and changes the memory when it is
// returned. The peer, which reads only then, must not get the change.
// Promise: unet/event/writefunc-returns-memory
func TestLentMemoryOfABrokenRing(t *testing.T) {
	needRing(t)
	for name, w := range map[string]wait{"auto": waitAuto, "netpoller": waitNetpoller} {
		t.Run(name, func(t *testing.T) {
			const size = 16 << 20
			p := make([]byte, size)
			returned, read := make(chan struct{}), make(chan struct{})
			opened := make(chan struct{})
			s, err := Listen("tcp", "127.0.0.1:0", Handler{OnOpen: func(c *Conn) {
				_ = c.WriteFunc(p, func(error) {
					for i := range p {
						p[i] = 0xff
					}
					close(returned)
					<-read
				})
				close(opened)
			}}, Options{Mode: ModeRing, Loops: 1, wait: w})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := dial(t, s)
			receive(t, "OnOpen", opened)
			await(t, "a send is in flight", func() (busy bool) {
				s.onLoops(t, func(l *loop) {
					l.conns[0].mu.Lock()
					busy = l.conns[0].out.busy
					l.conns[0].mu.Unlock()
				})
				return busy
			})
			s.breakLoop(0, errors.New("broken"))
			receive(t, "return of the memory", returned)
			time.AfterFunc(100*time.Millisecond, func() { close(read) })
			got, _ := io.ReadAll(c)
			if i := bytes.IndexByte(got, 0xff); i >= 0 {
				t.Errorf("byte %d of %d was sent after the memory was returned", i, len(got))
			}
		})
	}
}

// TestFileThatIsSlow has a file in use by its goroutine while the socket has room. The loop must
// wait for the goroutine and not be woken by the socket.
func TestFileThatIsSlow(t *testing.T) {
	conns := make(chan *Conn, 1)
	s := start(t, Handler{OnOpen: func(c *Conn) { conns <- c }}, Options{Mode: ModeEpoll, Loops: 1})
	dial(t, s)
	c := receive(t, "OnOpen", conns)
	busy := func(busy bool) {
		s.onLoops(t, func(l *loop) {
			c.mu.Lock()
			defer c.mu.Unlock()
			l.d.awaitWritable(c)
			c.out.busy = busy // as by a goroutine that reads
		})
	}
	busy(true)
	defer busy(false)
	await(t, "nothing wakes the loop", func() (idle bool) {
		s.onLoops(t, func(l *loop) { idle = c.bstate.watched&watch.Write == 0 && len(l.dirty) == 0 })
		return idle
	})
}

// TestKeepAliveIsThatOfNet compares the options of accepted connections with those of package net.
func TestKeepAliveIsThatOfNet(t *testing.T) {
	for _, lc := range []net.ListenConfig{
		{}, {KeepAlive: 42 * time.Second}, {KeepAlive: -1},
		{KeepAlive: 42 * time.Second, KeepAliveConfig: net.KeepAliveConfig{Interval: 7 * time.Second, Count: 3}},
		{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 1500 * time.Millisecond, Interval: -1, Count: 3}},
		{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: -1, Count: -1}},
	} {
		lc.SetMultipathTCP(false)
		options := func(fd int) (all []int) {
			for _, o := range [][2]int{{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE}, {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE},
				{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL}, {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT}, {syscall.IPPROTO_TCP, syscall.TCP_NODELAY}} {
				v, err := syscall.GetsockoptInt(fd, o[0], o[1])
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, v)
			}
			return all
		}
		ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		d, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		a, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		var want []int
		raw, err := a.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { want = options(int(fd)) })
		for _, c := range []io.Closer{a, d, ln} {
			_ = c.Close()
		}
		got := make(chan []int, 1)
		s := start(t, Handler{OnOpen: func(c *Conn) { got <- options(c.bstate.fd) }}, Options{Mode: ModeEpoll, Loops: 1, ListenConfig: &lc})
		dial(t, s)
		if all := receive(t, "OnOpen", got); !slices.Equal(all, want) {
			t.Errorf("%+v: on, idle, interval, count, no delay: %v, package net %v", lc, all, want)
		}
	}
}

// TestQueueThatIsNeverEmpty sends datagrams one by one while another one waits. The memory of those
// that were sent must be used again.
// Promise: unet/event/datagrams-loops-delivered
func TestQueueThatIsNeverEmpty(t *testing.T) {
	s := &loopSocket{c: &PacketConn{network: "udp"}, l: &loop{}}
	name := make([]byte, syscall.SizeofSockaddrInet6)
	next := 0 // the number of the datagram that is sent next
	sendOne := func(batch []outPacket) (int, syscall.Errno) {
		if s.blocked {
			return 0, syscall.EAGAIN
		}
		s.blocked = true // the loop of flush ends
		if _, data, _ := s.parts(batch[0]); len(data) < 4 || int(binary.NativeEndian.Uint32(data)) != next {
			t.Fatalf("datagram %d: %d bytes, %v", next, len(data), data[:min(len(data), 4)])
		}
		next++
		return 1, 0
	}
	for i := range 10_000 {
		p := make([]byte, 4+i%1000)
		binary.NativeEndian.PutUint32(p, uint32(i))
		s.enqueue(name, p, 0)
		if i == 0 {
			continue
		}
		s.blocked = false
		s.flush(sendOne)
	}
	if n := cap(s.arena); n > 64<<10 {
		t.Errorf("%d bytes of memory for one pending datagram", n)
	}
	if n := cap(s.queue); n > 1000 {
		t.Errorf("room for %d datagrams, of which one is pending", n)
	}
}

// TestMemoryOfPendingDatagrams: a socket that reaches its limit again and again allocates nothing for that, and one
// without pending datagrams keeps no more than arenaKept.
func TestMemoryOfPendingDatagrams(t *testing.T) {
	name, p := make([]byte, syscall.SizeofSockaddrInet6), make([]byte, 65_507)
	for limit, allocates := range map[int]bool{64 << 10: false, 8 << 20: true} {
		s := &loopSocket{c: &PacketConn{network: "udp"}, l: &loop{server: &Server{opts: Options{WriteLimit: limit}}}}
		fill := func() {
			for s.bytes < limit {
				s.enqueue(name, p, 0)
			}
			s.flush(func(batch []outPacket) (int, syscall.Errno) { return len(batch), 0 })
		}
		if n := ringtest.Allocations(10, fill); n > 0 && !allocates {
			t.Errorf("with a limit of %d bytes: %v allocations", limit, n)
		}
		if n := cap(s.arena); n > arenaKept {
			t.Errorf("with a limit of %d bytes: %d bytes are kept", limit, n)
		}
	}
}

// TestSocketThatLingers closes a connection that lingers and whose peer does not read. The other
// connections of the loop must not wait for that.
// Promise: unet/event/socket-linger-whose
func TestSocketThatLingers(t *testing.T) {
	const linger = 3600 // seconds
	for _, mode := range []Mode{ModeRing, ModeEpoll} {
		for _, how := range []string{"enrolled", "accepted"} {
			t.Run(mode.String()+"/"+how, func(t *testing.T) {
				if mode == ModeRing {
					needRing(t)
				}
				ln, err := (&net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
					return raw.Control(func(fd uintptr) {
						_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
						_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: linger})
					})
				}}).Listen(t.Context(), "tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				closed, conns := make(chan error, 2), make(chan *Conn, 2)
				h := echoes()
				h.OnOpen = func(c *Conn) { conns <- c }
				h.OnClose = func(_ *Conn, err error) { closed <- err }
				var served net.Listener
				if how == "accepted" {
					served = ln
				} else {
					defer ln.Close()
				}
				s, err := New(served, h, Options{Mode: mode, Loops: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				// connect returns the peer of a connection of the server, and lets the kernel take few of its bytes.
				connect := func() net.Conn {
					d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
						return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
					}}
					c, err := d.Dial("tcp", ln.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					peer := c
					if how == "enrolled" {
						if peer, err = ln.Accept(); err != nil {
							t.Fatal(err)
						}
						_ = peer.(*net.TCPConn).SetLinger(-1)
						_ = c.(*net.TCPConn).SetLinger(linger)
						if _, err := s.Enroll(c, ConnOptions{}); err != nil {
							t.Fatal(err)
						}
					}
					_ = peer.SetDeadline(time.Now().Add(testPatience))
					return peer
				}
				silent := connect()
				defer silent.Close()
				c := receive(t, "OnOpen", conns)
				if _, err := c.Write(make([]byte, 30_000)); err != nil {
					t.Fatal(err)
				}
				await(t, "the kernel has taken all", func() bool { return c.Pending() == 0 })
				_ = c.Close()
				if err := receive(t, "OnClose", closed); err != nil {
					t.Errorf("OnClose got %v", err)
				}
				other := connect()
				exchange(t, other, []byte("x"))
				_ = silent.Close() // which ends the wait
				_ = other.Close()
			})
		}
	}
}
