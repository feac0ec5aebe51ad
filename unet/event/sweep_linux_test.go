// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/faultsweep"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// sweptServer is a server for one run of the sweep, with the events that it reported.
type sweptServer struct {
	*Server
	t       *faultsweep.Trial
	buffers int
	path    string // path of a Unix socket

	mu             sync.Mutex
	opened, closed int
	failed         error // why each connection was closed
	shut           bool  // closed by the test
}

// server runs do with a server under faults and checks the server afterwards: the kernel
// has all buffers, the server works or has failed, and it ends.
func server(t *faultsweep.Trial, o Options, h Handler, do func(s *sweptServer)) {
	serverAt(t, "", o, h, do)
}

// serverAt is server on a Unix socket, if path is not empty.
func serverAt(t *faultsweep.Trial, path string, o Options, h Handler, do func(s *sweptServer)) {
	s := &sweptServer{t: t, buffers: 4}
	o.Buffers, o.BufferSize, o.Loops = s.buffers, 512, 1
	open, end := h.OnOpen, h.OnClose
	h.OnOpen = func(c *Conn) {
		s.mu.Lock()
		s.opened++
		s.mu.Unlock()
		if open != nil {
			open(c)
		}
	}
	h.OnClose = func(c *Conn, err error) {
		s.mu.Lock()
		s.closed++
		if err != nil && err != io.EOF && err != net.ErrClosed {
			s.failed = err
		}
		s.mu.Unlock()
		if end != nil {
			end(c, err)
		}
	}
	t.Arm()
	defer t.Disarm()
	network, address := "tcp", ownLoopback()
	if s.path = path; path != "" {
		_ = os.Remove(path)
		network, address = "unix", path
	}
	var err error
	s.Server, err = Listen(network, address, h, o)
	if !t.Judge("Listen", err) {
		s.removed()
		return
	}
	do(s)
	t.Disarm()
	t.Await("no connection is open", func() bool { return s.Stats().Open == 0 })
	s.mu.Lock()
	t.Judge("a connection", s.failed)
	s.failed = nil
	s.mu.Unlock()
	s.returned()
	if s.dead() && s.Err() == nil && !s.shut {
		t.Errorf("the loop has ended without reporting it")
	}
	t.Judge("the server", s.Close())
	if s.opened != s.closed {
		t.Errorf("%d connections were opened, %d closed", s.opened, s.closed)
	}
	// The kernel may hold the listener for a moment while it tears down a ring.
	t.Await("the address is free", func() bool {
		c, err := net.Dial(s.network, s.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	s.removed()
}

// ownLoopback is a loopback address that only this process uses, so that no test of another
// process gets the port of a server that has ended.
func ownLoopback() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:0", 1+pid>>14&0x7f, pid>>7&0x7f, 1+pid&0x7f)
}

// removed checks that the file of a Unix socket was removed.
func (s *sweptServer) removed() {
	if _, err := os.Lstat(s.path); s.path != "" && err == nil {
		s.t.Errorf("the file of the socket still exists")
	}
}

// dead reports whether the loop has failed, as it may after a permanent fault.
func (s *sweptServer) dead() bool {
	select {
	case <-s.engine.done():
		return true
	default:
		return false
	}
}

// returned waits until the kernel has all buffers again.
func (s *sweptServer) returned() {
	l, ok := s.engine.(*loops).all[0].(*ringLoop)
	if !ok {
		return
	}
	s.t.Await("all buffers are returned", func() bool {
		n := make(chan int, 1)
		l.post(func() {
			k, err := l.bufs.Available()
			if err != nil {
				k = s.buffers // before 6.8 the number is not known
			}
			n <- k
		})
		for {
			select {
			case k := <-n:
				return k == s.buffers
			case <-time.After(10 * time.Millisecond):
				if s.dead() {
					return true
				}
			}
		}
	})
}

// dial connects a client whose calls time out.
func (s *sweptServer) dial() net.Conn {
	c, err := net.Dial(s.network, s.Addr().String())
	if err != nil {
		s.lost("dial", err)
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(faultsweep.Patience / 2))
	return c
}

// lost checks the error of a client: a fault that is not passing may break a connection,
// but no client may wait for ever.
func (s *sweptServer) lost(what string, err error) {
	var ne net.Error
	switch c, fired := s.t.Choice(); {
	case errors.As(err, &ne) && ne.Timeout():
		s.t.Errorf("the client: %s: %v", what, err)
	case !fired || c.Passing:
		s.t.Errorf("the client: %s: %v, without a reason", what, err)
	}
}

// talk sends p and reads the reply to the end of the stream.
func (s *sweptServer) talk(p, want []byte) {
	c := s.dial()
	if c == nil {
		return
	}
	defer c.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Write(p)
		if err == nil {
			err = c.(interface{ CloseWrite() error }).CloseWrite()
		}
		if err != nil {
			s.lost("write", err)
		}
	})
	got, err := io.ReadAll(c)
	wg.Wait()
	if err == nil && len(got) < len(want) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		s.lost("read", err)
	}
	if !bytes.HasPrefix(want, got) {
		s.t.Errorf("the client: %d bytes, or other bytes than the server sent", len(got))
	}
}

// sweptEcho echoes, and again after the faults.
func sweptEcho(path string, o Options) func(*faultsweep.Trial) {
	p := random(3000, 1)
	return func(t *faultsweep.Trial) {
		serverAt(t, path, o, echoes(), func(s *sweptServer) {
			s.talk(p, p)
			if t.Disarm(); !s.dead() {
				s.talk(p, p)
			}
		})
	}
}

// sweptWrite writes from a goroutine more than may be pending, and closes.
func sweptWrite(o Options) func(*faultsweep.Trial) {
	p := random(200_000, 2)
	o.WriteLimit = 8 << 10
	return func(t *faultsweep.Trial) {
		var all sync.WaitGroup
		room := make(chan struct{}, 1)
		gone := make(chan struct{})
		var once sync.Once
		h := Handler{
			OnOpen: func(c *Conn) {
				all.Go(func() {
					for at := 0; at < len(p); {
						n, err := c.Writev(net.Buffers{p[at:min(at+3000, len(p))], p[min(at+3000, len(p)):min(at+5000, len(p))]})
						at += int(n)
						if err == nil {
							continue
						}
						if !errors.Is(err, ErrFull) {
							return
						}
						select {
						case <-room:
						case <-gone:
							return
						}
					}
					_ = c.Close()
				})
			},
			OnWritable: func(*Conn) {
				select {
				case room <- struct{}{}:
				default:
				}
			},
			OnEOF:   func(*Conn) {}, // the client closes at once
			OnClose: func(*Conn, error) { once.Do(func() { close(gone) }) },
		}
		server(t, o, h, func(s *sweptServer) { s.talk(nil, p) })
		all.Wait()
	}
}

// sweptLend passes its memory to WriteFunc and closes when the memory is returned.
func sweptLend(o Options) func(*faultsweep.Trial) {
	p := random(100_000, 5)
	return func(t *faultsweep.Trial) {
		var lent, returned atomic.Int64
		h := Handler{
			OnOpen: func(c *Conn) {
				lent.Add(1)
				if err := c.WriteFunc(p, func(error) { returned.Add(1); _ = c.Close() }); err != nil {
					t.Errorf("WriteFunc: %v", err)
				}
			},
			OnEOF: func(*Conn) {}, // the client closes at once
		}
		server(t, o, h, func(s *sweptServer) { s.talk(nil, p) })
		if l, r := lent.Load(), returned.Load(); l != r {
			t.Errorf("memory was passed %d times and returned %d times", l, r)
		}
	}
}

// sweptFile sends a part of a file, and closes when that is done.
func sweptFile(dir string, o Options) func(*faultsweep.Trial) {
	p := random(100_000, 6)
	name := filepath.Join(dir, "f")
	return func(t *faultsweep.Trial) {
		if err := os.WriteFile(name, p, 0o600); err != nil {
			t.Errorf("%v", err)
			return
		}
		f, err := os.Open(name)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		defer f.Close()
		var lent, returned atomic.Int64
		h := Handler{
			OnOpen: func(c *Conn) {
				lent.Add(1)
				if err := c.SendFile(f, 10, int64(len(p)-10), func(error) { returned.Add(1); _ = c.Close() }); err != nil {
					t.Errorf("SendFile: %v", err)
				}
			},
			OnEOF: func(*Conn) {}, // the client closes at once
		}
		server(t, o, h, func(s *sweptServer) { s.talk(nil, p[10:]) })
		if l, r := lent.Load(), returned.Load(); l != r {
			t.Errorf("the file was passed %d times and returned %d times", l, r)
		}
	}
}

// sweptBlocking echoes in a blocking handler.
func sweptBlocking(o Options) func(*faultsweep.Trial) {
	p := random(3000, 7)
	return func(t *faultsweep.Trial) {
		server(t, o, Blocking(func(c net.Conn) {
			buf := make([]byte, 100)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				if _, err := c.Write(buf[:n]); err != nil {
					return
				}
			}
		}), func(s *sweptServer) { s.talk(p, p) })
	}
}

// sweptEnroll serves an existing listener, an existing connection, and a connection that it
// dials.
func sweptEnroll(o Options) func(*faultsweep.Trial) {
	o.Loops, o.Buffers, o.BufferSize = 1, 4, 512
	return func(t *faultsweep.Trial) {
		ln, err := net.Listen("tcp", ownLoopback())
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		defer ln.Close()
		t.Arm()
		defer t.Disarm()
		var opened, closed atomic.Int64
		var failed atomic.Pointer[error]
		ends := func(_ *Conn, err error) {
			closed.Add(1)
			// Both ends belong to this server: the failure of one end resets the other.
			if err != nil && err != io.EOF && err != net.ErrClosed && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				failed.Store(&err)
			}
		}
		s, err := New(ln, Handler{
			OnOpen:  func(*Conn) { opened.Add(1) },
			OnData:  func(c *Conn, p []byte) { _, _ = c.Write(p) },
			OnClose: ends,
		}, o)
		if !t.Judge("New", err) {
			return
		}
		ended := make(chan struct{}, 2)
		client := ConnOptions{Handler: &Handler{
			OnOpen:  func(c *Conn) { opened.Add(1); _, _ = c.Write([]byte("x")) },
			OnData:  func(c *Conn, _ []byte) { _ = c.Close() },
			OnClose: func(c *Conn, err error) { ends(c, err); ended <- struct{}{} },
		}}
		wait := func(what string, err error) {
			var oe *net.OpError
			if c, fired := t.Choice(); errors.As(err, &oe) && fired && !c.Passing {
				return // the loop has ended
			}
			if !t.Judge(what, err) {
				return
			}
			select {
			case <-ended:
			case <-time.After(faultsweep.Patience / 2):
				if _, fired := t.Choice(); !fired {
					t.Errorf("the exchange after %s does not end", what)
				}
			}
		}
		_, err = s.Dial(context.Background(), "tcp", s.Addr().String(), client)
		wait("Dial", err)
		if nc, err := net.Dial("tcp", s.Addr().String()); err == nil {
			_, err = s.Enroll(nc, client)
			wait("Enroll", err)
			_ = nc.Close()
		}
		t.Disarm()
		err = s.Close()
		t.Judge("the server", err)
		if err := failed.Load(); err != nil {
			t.Judge("a connection", *err)
		}
		if o, c := opened.Load(), closed.Load(); o != c {
			t.Errorf("%d connections were opened, %d closed", o, c)
		}
	}
}

// sweptPackets echoes datagrams; the client repeats each until it gets a reply.
func sweptPackets(network, dir string, o Options) func(*faultsweep.Trial) {
	o.Loops = 1
	return func(t *faultsweep.Trial) {
		address, own := ownLoopback(), ownLoopback()
		if network == "unixgram" {
			address, own = filepath.Join(dir, "server"), filepath.Join(dir, "client")
			_ = os.Remove(address)
			_ = os.Remove(own)
		}
		pc, err := net.ListenPacket(network, own)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		defer pc.Close()
		t.Arm()
		defer t.Disarm()
		s, err := New(nil, Handler{}, o)
		if !t.Judge("New", err) {
			return
		}
		var closed atomic.Int64
		var failed atomic.Value
		ended := make(chan struct{})
		h := PacketHandler{
			OnPacket: func(c *PacketConn, from Peer, p []byte) {
				self := peerOf(c.LocalAddr())
				if from == self {
					return
				}
				_, _ = c.WriteTo(p, from)
				if network == "udp" {
					_, _ = c.WriteSegments(p, len(p)/2, self)
				}
			},
			OnClose: func(_ *PacketConn, err error) {
				closed.Add(1)
				if err != nil {
					failed.Store(err)
				}
				close(ended)
			},
		}
		var c *PacketConn
		if network == "udp" {
			c, err = s.ListenPacket(network, address, h)
		} else if theirs, listenErr := net.ListenPacket(network, address); listenErr == nil {
			defer theirs.Close()
			c, err = s.EnrollPacket(theirs, h)
		} else {
			err = listenErr
		}
		if !t.Judge("ListenPacket or EnrollPacket", err) {
			t.Disarm()
			t.Judge("the server", s.Close())
			return
		}
		if network == "udp" {
			if err := c.SetGRO(true); !errors.Is(err, net.ErrClosed) { // the socket may have failed already
				t.Judge("SetGRO", err)
			}
		}
		c.PauseRead()
		c.ResumeRead()
		buf := make([]byte, 2000)
		armed := true
		exchange := func(p []byte) bool {
			for end := time.Now().Add(faultsweep.Patience / 2); time.Now().Before(end); {
				_, _ = pc.WriteTo(p, c.LocalAddr())
				_ = pc.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				n, _, err := pc.ReadFrom(buf)
				if err == nil && bytes.Equal(buf[:n], p) {
					return true
				}
				choice, fired := t.Choice()
				select {
				case <-ended:
					return false
				default:
					if armed && fired && !choice.Passing {
						return false
					}
				}
			}
			return false
		}
		for i := range 3 {
			if exchange(random(500*i+1, uint64(i))) {
				continue
			}
			if choice, fired := t.Choice(); !fired || choice.Passing { // a permanent fault may lose each datagram
				t.Errorf("datagram %d got no reply", i)
			}
			break
		}
		armed = false
		serves := func() bool { return closed.Load() == 0 && s.Err() == nil } // the fault may be late
		if t.Disarm(); serves() && !exchange([]byte("again")) && serves() {
			t.Errorf("no datagram gets a reply after the faults")
		}
		t.Judge("the server", s.Close())
		if err, ok := failed.Load().(error); ok {
			t.Judge("the socket", err)
		}
		if n := closed.Load(); n != 1 {
			t.Errorf("OnClose was called %d times", n)
		}
	}
}

// sweptPause stops reading for a while and replies when all data has arrived.
func sweptPause(o Options) func(*faultsweep.Trial) {
	p := random(5000, 3)
	return func(t *faultsweep.Trial) {
		h := Handler{
			OnOpen:  func(c *Conn) { c.PauseRead(); c.SetTimer(time.Millisecond) },
			OnTimer: func(c *Conn) { c.Post(c.ResumeRead) },
			OnData: func(c *Conn, p []byte) {
				var got []byte
				if v := c.Value(); v != nil {
					got = v.([]byte)
				}
				c.SetValue(append(got, p...))
			},
			OnEOF: func(c *Conn) {
				if got, ok := c.Value().([]byte); ok {
					_, _ = c.Write(got)
				}
				_ = c.CloseWrite()
				_ = c.Close()
			},
		}
		server(t, o, h, func(s *sweptServer) { s.talk(p, p) })
	}
}

// sweptShutdown shuts down while a connection is open. Afterwards, or instead, the rest is
// aborted.
func sweptShutdown(o Options) func(*faultsweep.Trial) {
	p := random(2000, 4)
	return func(t *faultsweep.Trial) {
		server(t, o, echoes(), func(s *sweptServer) {
			c := s.dial()
			if c == nil {
				return
			}
			defer c.Close()
			if _, err := c.Write(p); err != nil {
				s.lost("write", err)
				return
			}
			got := make([]byte, len(p))
			n, err := io.ReadFull(c, got)
			if err != nil {
				s.lost("read", err)
			}
			if !bytes.Equal(got[:n], p[:n]) {
				t.Errorf("the client: %d bytes, or other bytes than the server sent", n)
			}
			ctx, cancel := context.WithTimeout(context.Background(), faultsweep.Patience/2)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- s.Shutdown(ctx) }()
			if rest, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) || len(rest) > 0 {
				t.Errorf("the client: %d bytes at the end, %v", len(rest), err)
			}
			_ = c.Close()
			s.shut = true
			t.Judge("Shutdown", <-done)
		})
	}
}

// sweptAbort aborts connections at once.
func sweptAbort(o Options) func(*faultsweep.Trial) {
	return func(t *faultsweep.Trial) {
		h := Handler{OnData: func(c *Conn, _ []byte) { c.Abort() }}
		server(t, o, h, func(s *sweptServer) {
			c := s.dial()
			if c == nil {
				return
			}
			defer c.Close()
			_, _ = c.Write([]byte("x"))
			n, err := c.Read(make([]byte, 1))
			var ne net.Error
			if n != 0 || err == nil || errors.As(err, &ne) && ne.Timeout() {
				t.Errorf("the client of a connection that was aborted: %d, %v", n, err)
			}
		})
	}
}

// sweptAbortBoth aborts connections that wait for data and for room to send.
func sweptAbortBoth(o Options) func(*faultsweep.Trial) {
	p := make([]byte, 2<<20) // more than the sockets hold
	o.WriteLimit, o.ListenConfig = 1<<30, smallBuffers()
	return func(t *faultsweep.Trial) {
		var lent, returned atomic.Int64
		var sender atomic.Pointer[Conn]
		h := Handler{OnData: func(c *Conn, _ []byte) {
			if sender.Swap(c) != nil {
				c.Abort()
				return
			}
			lent.Add(1)
			if err := c.WriteFunc(p, func(error) { returned.Add(1) }); err != nil {
				t.Errorf("WriteFunc: %v", err)
			}
		}}
		server(t, o, h, func(s *sweptServer) {
			c := s.dial()
			if c == nil {
				return
			}
			defer c.Close()
			_ = c.(*net.TCPConn).SetReadBuffer(64 << 10) // few bytes fill the sockets
			_, _ = c.Write([]byte("x"))
			if _, err := c.Read(make([]byte, 1)); err != nil { // the server sends
				s.lost("read", err)
				return
			}
			last, same := -1, 0
			t.Await("the sockets are full", func() bool { // otherwise the send may end by itself
				if n := sender.Load().Pending(); n != last {
					last, same = n, 0
				}
				same++
				return same > 10
			})
			_, _ = c.Write([]byte("x"))
			t.Await("the connection is closed", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.closed > 0
			})
		})
		if l, r := lent.Load(), returned.Load(); l != r {
			t.Errorf("memory was passed %d times and returned %d times", l, r)
		}
	}
}

// sweptOperations are all operations that the sweep runs, with sockets in dir.
func sweptOperations(dir string) []faultsweep.Operation {
	thread := Options{Mode: ModeRing, wait: waitThread}
	netpoller := Options{Mode: ModeRing, wait: waitNetpoller}
	epoll := Options{Mode: ModeEpoll}
	// Clients wait while there are no descriptors.
	waits := map[string][]faultsweep.Choice{"accept": faultsweep.Passes(syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS,
		syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR)}
	// Where io_uring was not requested, epoll replaces it.
	falls := map[string][]faultsweep.Choice{}
	for _, kind := range []string{"io_uring_setup", "io_uring_register"} {
		for _, c := range faultsweep.Choices[kind] {
			falls[kind] = append(falls[kind], faultsweep.Choice{Errno: c.Errno, Passing: true})
		}
	}
	falls["mmap"] = []faultsweep.Choice{{Errno: syscall.ENOMEM, Passing: true, Once: true}}
	path := filepath.Join(dir, "s")
	return []faultsweep.Operation{
		{Name: "echo, thread", Syscalls: true, Run: sweptEcho("", thread), Most: 3, Covers: "Listen Conn.Write Server.Close"},
		{Name: "echo, netpoller", Syscalls: true, Run: sweptEcho("", netpoller), Most: 3},
		{Name: "echo, epoll", Run: sweptEcho("", epoll), Instead: waits, Most: 3},
		{Name: "echo, unix, thread", Syscalls: true, Run: sweptEcho(path, thread), Only: faultsweep.Opening},
		{Name: "echo, unix, netpoller", Syscalls: true, Run: sweptEcho(path, netpoller), Only: faultsweep.Opening},
		{Name: "echo, unix, epoll", Run: sweptEcho(path, epoll), Only: faultsweep.Opening},
		{Name: "echo, unix, auto", Run: sweptEcho(path, Options{wait: waitNetpoller}), Instead: falls, Only: []string{"io_uring_setup", "io_uring_register", "mmap"}},
		{Name: "write, thread", Syscalls: true, Run: sweptWrite(thread), Opened: true, Most: 1, Covers: "Conn.Writev Conn.Close"},
		{Name: "write, netpoller", Syscalls: true, Run: sweptWrite(netpoller), Opened: true, Most: 1},
		{Name: "lend, thread", Syscalls: true, Run: sweptLend(thread), Opened: true, Most: 1, Covers: "Conn.WriteFunc"},
		{Name: "lend, netpoller", Syscalls: true, Run: sweptLend(netpoller), Opened: true, Most: 1},
		{Name: "lend, epoll", Run: sweptLend(epoll), Instead: waits, Opened: true, Most: 1},
		{Name: "file, thread", Syscalls: true, Run: sweptFile(dir, thread), Opened: true, Most: 1, Covers: "Conn.SendFile"},
		{Name: "file, epoll", Run: sweptFile(dir, epoll), Instead: waits, Opened: true, Most: 1},
		{Name: "blocking, thread", Syscalls: true, Run: sweptBlocking(thread), Opened: true, Most: 1, Covers: "Blocking"},
		{Name: "blocking, epoll", Run: sweptBlocking(epoll), Instead: waits, Opened: true, Most: 1},
		{Name: "enroll, thread", Syscalls: true, Run: sweptEnroll(thread), Most: 1, Covers: "New Server.Enroll Server.Dial"},
		{Name: "enroll, netpoller", Syscalls: true, Run: sweptEnroll(netpoller), Most: 1},
		{Name: "enroll, epoll", Run: sweptEnroll(epoll), Instead: waits, Most: 1},
		{Name: "packets, thread", Run: sweptPackets("udp", dir, thread), Opened: true, Most: 1,
			Covers: "Server.ListenPacket PacketConn.WriteTo PacketConn.WriteSegments PacketConn.SetGRO PacketConn.PauseRead PacketConn.ResumeRead PacketConn.Close Server.EnrollPacket"},
		{Name: "packets, netpoller", Run: sweptPackets("udp", dir, netpoller), Opened: true, Most: 1},
		{Name: "packets, epoll", Run: sweptPackets("udp", dir, epoll), Opened: true, Most: 1},
		{Name: "packets, unix, epoll", Run: sweptPackets("unixgram", dir, epoll), Opened: true, Most: 1},
		{Name: "pause, thread", Syscalls: true, Run: sweptPause(thread), Opened: true, Most: 1, Covers: "Conn.PauseRead Conn.ResumeRead Conn.SetTimer Conn.Post Conn.CloseWrite"},
		{Name: "pause, netpoller", Syscalls: true, Run: sweptPause(netpoller), Opened: true, Most: 1},
		{Name: "pause, epoll", Run: sweptPause(epoll), Instead: waits, Opened: true, Most: 1},
		{Name: "shutdown, thread", Syscalls: true, Run: sweptShutdown(thread), Opened: true, Most: 1, Covers: "Server.Shutdown"},
		{Name: "shutdown, netpoller", Syscalls: true, Run: sweptShutdown(netpoller), Opened: true, Most: 1},
		{Name: "abort, thread", Syscalls: true, Run: sweptAbort(thread), Opened: true, Most: 1, Covers: "Conn.Abort"},
		{Name: "abort, netpoller", Syscalls: true, Run: sweptAbort(netpoller), Opened: true, Most: 1},
		{Name: "abort both, thread", Syscalls: true, Run: sweptAbortBoth(thread), Opened: true, Most: 1},
		{Name: "abort both, netpoller", Syscalls: true, Run: sweptAbortBoth(netpoller), Opened: true, Most: 1},
	}
}

// TestFaultSweep makes each call to the kernel fail in turn.
// Promise: unet/event/datagrams-loops-delivered
// Promise: unet/event/right-result-error
// Promise: unet/event/segments-loops-datagrams
func TestFaultSweep(t *testing.T) {
	faultsweep.Need(t)
	needRing(t)
	ringtest.NeedKernel(t, "deferred task work", "6.1")
	faultsweep.Check(t, sweptOperations(t.TempDir()))
}

// TestFaultSweepSimulated does the same with simulated rings.
// Promise: unet/event/right-result-error
func TestFaultSweepSimulated(t *testing.T) {
	needRing(t)
	ringtest.NeedKernel(t, "deferred task work", "6.1")
	faultsweep.CheckSimulated(t, sweptOperations(t.TempDir()))
}

// TestFaultSweepCoversAll compares the sweep with the exported functions of the package.
// Promise: unet/event/right-result-error
func TestFaultSweepCoversAll(t *testing.T) {
	faultsweep.API(t, sweptOperations(""), faultsweep.Exempt{
		"makes no call to the kernel": "Conn.LocalAddr Conn.RemoteAddr Conn.Pending Conn.SetValue Conn.Value " +
			"Conn.SetFullDuplex PacketConn.LocalAddr PacketConn.Pending PacketConn.Server Peer.String Conn.Full Conn.Server Conn.TLSState HandlerError.Error Server.Addr Server.Backend Server.Done Server.Err Server.Stats Stats.Plus",
	})
}
