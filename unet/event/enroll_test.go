// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// bulkTotal is how many bytes a test transfers. It is smaller with the race detector, which
// checks each byte, and with -short, which emulated machines use.
func bulkTotal(n int) int {
	if raceEnabled || testing.Short() {
		return n / 8
	}
	return n
}

// TestBulk transfers megabytes in both directions, by copies and by WriteFunc, whose memory
// must be returned once, unchanged and in order.
// Promise: unet/event/bulk-data-arrives
// Promise: unet/event/writefunc-returns-memory
func TestBulk(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		all := random(bulkTotal(8<<20), 1)
		for _, size := range []int{100, 5000, 70_000, 1 << 20} {
			want := all[:min(len(all), 5000*size)]
			var lent, returned int64
			closed := make(chan int64, 1)
			s := start(t, Handler{
				OnOpen: func(c *Conn) {
					at, copied := 0, false
					var push func(error)
					push = func(err error) {
						for err == nil && at < len(want) && !c.Full() {
							p := want[at:min(at+size, len(want))]
							at += len(p)
							if copied = !copied && size >= 5000; copied {
								_, err = c.Write(p)
								continue
							}
							lent += int64(len(p))
							err = c.WriteFunc(p, func(err error) { returned += int64(len(p)); push(err) })
						}
						if err != nil {
							t.Errorf("%v", err)
						}
						if at == len(want) {
							at++
							_ = c.CloseWrite()
						}
					}
					c.SetValue(func() { push(nil) })
					push(nil)
				},
				OnWritable: func(c *Conn) { c.Value().(func())() },
				OnClose:    func(*Conn, error) { closed <- lent - returned },
			}, o)
			peer := dial(t, s)
			got, err := io.ReadAll(peer)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("pieces of %d: %d bytes of %d, equal %v: %v", size, len(got), len(want), bytes.Equal(got, want), err)
			}
			_ = peer.Close()
			if n := receive(t, "OnClose", closed); n != 0 {
				t.Errorf("%d bytes passed to WriteFunc were not returned", n)
			}
			exchange(t, dial(t, start(t, echoes(), o)), want)
		}
	})
}

// TestBulkPieces checks the pieces that OnData of a busy connection gets: up to 1 MiB, and
// at most BufferSize where that is set.
// Promise: unet/event/bulk-data-arrives
func TestBulkPieces(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		for _, size := range []int{0, 3000} {
			o.BufferSize, o.Buffers = size, 16 // which cannot hold all pieces
			var longest, total atomic.Int64
			sum := make(chan []byte, 1)
			var all []byte
			opened := make(chan *Conn, 1)
			s := start(t, Handler{
				OnOpen: func(c *Conn) { c.PauseRead(); opened <- c },
				OnData: func(c *Conn, p []byte) {
					longest.Store(max(longest.Load(), int64(len(p))))
					total.Add(int64(len(p)))
					all = append(all, p...)
				},
				OnEOF: func(c *Conn) { sum <- all; _ = c.Close() },
			}, o)
			want := random(max(bulkTotal(16<<20), 4<<20), 2)
			c := dial(t, s)
			const waiting = 200 << 10
			if _, err := c.Write(want[:waiting]); err != nil {
				t.Fatal(err)
			}
			receive(t, "OnOpen", opened).ResumeRead()
			if _, err := c.Write(want[waiting:]); err != nil {
				t.Fatal(err)
			}
			_ = c.(*net.TCPConn).CloseWrite()
			if got := receive(t, "all", sum); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, equal false", len(got))
			}
			if n := longest.Load(); size > 0 && n > int64(size) || size == 0 && (n > bulkPiece || n <= 4<<10) {
				t.Errorf("BufferSize %d: the longest piece has %d bytes", size, n)
			}
		}
	})
}

// TestLentMemoryIsReturned ends connections that cannot send the memory passed to WriteFunc:
// each piece is returned once, before OnClose, with a reason.
// Promise: unet/event/sendfile-sends-parts
// Promise: unet/event/writefunc-returns-memory
func TestLentMemoryIsReturned(t *testing.T) {
	for name, end := range map[string]func(s *Server, c *Conn, peer net.Conn){
		"abort":  func(_ *Server, c *Conn, _ net.Conn) { c.Abort() },
		"server": func(s *Server, _ *Conn, _ net.Conn) { _ = s.Close() },
		"reset": func(_ *Server, _ *Conn, peer net.Conn) {
			_ = peer.(*net.TCPConn).SetLinger(0)
			_ = peer.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			overModes(t, func(t *testing.T, o Options) {
				o.WriteLimit = 1 << 30
				const pieces, size = 5, 8 << 20 // together more than sockets hold
				file := tempFile(t, make([]byte, size))
				var back atomic.Int64
				var nils atomic.Int64
				conns, closed := make(chan *Conn, 1), make(chan int64, 1)
				s := start(t, Handler{
					OnOpen: func(c *Conn) {
						for i := range pieces {
							done := func(err error) {
								back.Add(1)
								if err == nil {
									nils.Add(1)
								}
							}
							if i%2 == 0 {
								_ = c.WriteFunc(make([]byte, size), done)
							} else {
								_ = c.SendFile(file, 0, size, done)
							}
						}
						conns <- c
					},
					OnClose: func(*Conn, error) { closed <- back.Load() },
				}, o)
				peer := dial(t, s)
				c := receive(t, "OnOpen", conns)
				if _, err := io.ReadFull(peer, make([]byte, 1<<20)); err != nil {
					t.Fatal(err)
				}
				end(s, c, peer)
				if n := receive(t, "OnClose", closed); n != pieces {
					t.Errorf("%d of %d pieces were returned before OnClose", n, pieces)
				}
				if nils.Load() == pieces {
					t.Error("all pieces were sent, want a reason for some")
				}
				if err := c.WriteFunc([]byte("x"), func(error) { t.Error("called") }); !errors.Is(err, net.ErrClosed) {
					t.Errorf("WriteFunc after the end: %v", err)
				}
			})
		})
	}
}

// tempFile returns a file with the given content.
func tempFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err == nil {
		_, err = f.Write(content)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestSendFile sends parts of a file between copied and lent bytes, to a peer that reads at
// its own pace.
// Promise: unet/event/sendfile-sends-parts
func TestSendFile(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		content := random(ringtest.Rounds(5<<20, 2<<20), 3)
		f := tempFile(t, content)
		var want []byte
		for range 2 {
			want = append(want, "head"...)
			want = append(want, content[1000:]...)
			want = append(want, "lent"...)
			want = append(want, content[:10]...)
		}
		o.WriteLimit = 1 << 30
		done := make(chan error, 6)
		send := func(c *Conn) error {
			_, err := c.Write([]byte("head"))
			return errors.Join(err,
				c.SendFile(f, 1000, int64(len(content)-1000), func(err error) { done <- err }),
				c.WriteFunc([]byte("lent"), func(err error) { done <- err }),
				c.SendFile(f, 0, 10, func(err error) { done <- err }))
		}
		s := start(t, Handler{OnData: func(c *Conn, p []byte) {
			for range p {
				if err := send(c); err != nil {
					t.Errorf("send: %v", err)
				}
			}
			_ = c.Close()
		}}, o)
		peer := dial(t, s)
		if _, err := peer.Write([]byte("xy")); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(peer)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, equal %v: %v; want %d", len(got), bytes.Equal(got, want), err, len(want))
		}
		for range cap(done) {
			if err := receive(t, "done", done); err != nil {
				t.Errorf("done: %v", err)
			}
		}
	})
}

// TestSendFileFails sends more bytes than a file has, and a closed file: the connection
// ends with the reason.
// Promise: unet/event/sendfile-sends-parts
func TestSendFileFails(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		closed := tempFile(t, []byte("x"))
		_ = closed.Close()
		for want, f := range map[error]*os.File{io.ErrUnexpectedEOF: tempFile(t, []byte("short")), os.ErrClosed: closed} {
			done, ended := make(chan error, 1), make(chan error, 1)
			s := start(t, Handler{
				OnOpen: func(c *Conn) {
					if err := c.SendFile(f, -1, 1, nil); !errors.Is(err, os.ErrInvalid) {
						t.Errorf("a negative offset: %v", err)
					}
					if err := c.SendFile(f, 0, 10, func(err error) { done <- err }); err != nil {
						t.Errorf("SendFile: %v", err)
					}
				},
				OnClose: func(_ *Conn, err error) { ended <- err },
			}, o)
			dial(t, s)
			for what, got := range map[string]error{"done": receive(t, "done", done), "OnClose": receive(t, "OnClose", ended)} {
				if !errors.Is(got, want) {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
		}
	})
}

// pair is a connection of a proxy and the connection that it dialled.
type pair struct {
	sides [2]*Conn // the callbacks of the two never overlap
	ended int      // how many of them have ended their direction
	over  bool
}

func (p *pair) other(c *Conn) *Conn {
	if c == p.sides[0] {
		return p.sides[1]
	}
	return p.sides[0]
}

// proxy connects each connection of a server to the address.
func proxy(t testing.TB, address string) Handler {
	of := func(c *Conn) *pair { return c.Value().(*pair) }
	h := Handler{
		OnData: func(c *Conn, p []byte) {
			to := of(c).other(c)
			if _, err := to.Write(p); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Errorf("write: %v", err)
			}
			if to.Full() {
				c.PauseRead()
			}
		},
		OnWritable: func(c *Conn) { of(c).other(c).ResumeRead() },
		OnEOF: func(c *Conn) {
			p := of(c)
			_ = p.other(c).CloseWrite()
			if p.ended++; p.ended == 2 {
				_ = c.Close()
				_ = p.other(c).Close()
			}
		},
		OnClose: func(c *Conn, err error) {
			p := of(c)
			p.over = true
			if to := p.other(c); to != nil && err != nil {
				to.Abort()
			}
		},
	}
	dials := h
	dials.OnOpen = func(c *Conn) {
		p := &pair{sides: [2]*Conn{c, nil}}
		c.SetValue(p)
		c.SetFullDuplex(true)
		c.PauseRead()
		go func() {
			opened := h
			opened.OnOpen = func(to *Conn) {
				to.SetFullDuplex(true)
				if p.sides[1] = to; p.over {
					to.Abort()
				}
				c.ResumeRead()
			}
			if _, err := c.Server().Dial(context.Background(), "tcp", address, ConnOptions{Handler: &opened, Beside: c, Value: p}); err != nil {
				c.Abort()
			}
		}()
	}
	return dials
}

// TestProxy sends megabytes in both directions through a proxy, with slow readers on either
// side.
// Promise: unet/event/callbacks-connections-beside
func TestProxy(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		o.WriteLimit, o.ListenConfig = 20_000, smallBuffers()
		backend, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer backend.Close()
		down := random(bulkTotal(3<<20), 1)
		ups := make(chan []byte, 4)
		go func() {
			for {
				c, err := backend.Accept()
				if err != nil {
					return
				}
				sent := make(chan struct{})
				go func() {
					_, _ = c.Write(down)
					_ = c.(*net.TCPConn).CloseWrite()
					close(sent)
				}()
				go func() {
					time.Sleep(20 * time.Millisecond) // let the buffers of the other side fill up
					p, _ := io.ReadAll(c)
					ups <- p
					<-sent
					_ = c.Close()
				}()
			}
		}()
		s := start(t, proxy(t, backend.Addr().String()), o)
		var wg sync.WaitGroup
		up := random(bulkTotal(3<<20), 2)
		for range cap(ups) {
			wg.Go(func() {
				c := dial(t, s)
				defer c.Close()
				wg.Go(func() {
					if _, err := c.Write(up); err != nil {
						t.Errorf("write: %v", err)
					}
					_ = c.(*net.TCPConn).CloseWrite()
				})
				time.Sleep(20 * time.Millisecond)
				if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, down) {
					t.Errorf("%d of %d bytes came from the backend, equal %v: %v", len(got), len(down), bytes.Equal(got, down), err)
				}
			})
		}
		for range cap(ups) {
			if got := receive(t, "a stream", ups); !bytes.Equal(got, up) {
				t.Errorf("%d of %d bytes came to the backend", len(got), len(up))
			}
		}
		wg.Wait()
		await(t, "all have ended", func() bool { return s.Stats().Open == 0 })
		if st := s.Stats(); st.Enrolled != uint64(cap(ups)) || st.Accepted != st.Enrolled {
			t.Errorf("%+v", st)
		}
	})
}

// TestNew serves existing listeners of each kind, and no listener.
// Promise: unet/event/enroll-new-take
func TestNew(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		paths := []string{socketPath(t), socketPath(t)}
		for _, listen := range []func() (net.Listener, error){
			func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
			func() (net.Listener, error) { return net.Listen("unix", paths[0]) },
			func() (net.Listener, error) { return unet.Listen("tcp", "127.0.0.1:0") },
			func() (net.Listener, error) { return unet.Listen("unix", paths[1]) },
		} {
			ln, err := listen()
			if err != nil {
				t.Fatal(err)
			}
			s, err := New(ln, echoes(), o)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				exchange(t, dial(t, s), random(10_000, 1))
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if c, err := net.Dial(s.Addr().Network(), s.Addr().String()); err == nil {
				_ = c.Close()
				t.Error("the socket still listens")
			}
		}
		for _, path := range paths {
			if _, err := os.Lstat(path); err != nil && runtime.GOOS != "windows" {
				t.Errorf("the file of the socket: %v", err)
			}
		}
		s, err := New(nil, Handler{}, o)
		if err != nil {
			t.Fatal(err)
		}
		if s.Addr() != nil {
			t.Errorf("address %v", s.Addr())
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := s.Dial(t.Context(), "tcp", "127.0.0.1:1", ConnOptions{}); err == nil {
			t.Error("connected to a port that is closed")
		}
	})
}

// TestNewLeavesTheListener passes listeners to New that it refuses.
// Promise: unet/event/enroll-new-take
func TestNewLeavesTheListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	hidden := struct{ net.Listener }{ln}
	for _, m := range []Mode{ModeRing, ModeEpoll} {
		if _, err := New(hidden, Handler{}, Options{Mode: m}); err == nil {
			t.Errorf("%v: New accepted a listener without a descriptor", m)
		}
	}
	go func() {
		if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
			_ = c.Close()
		}
	}()
	c, err := ln.Accept()
	if err != nil {
		t.Fatalf("after New: %v", err)
	}
	_ = c.Close()
}

// TestEnroll passes connections of net and unet in both roles, over TCP and Unix sockets,
// and passes one to a server that ends.
// Promise: unet/event/enroll-new-take
func TestEnroll(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		s, err := New(nil, Handler{OnData: func(c *Conn, p []byte) { _, _ = c.Write(p) }}, o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, network := range []string{"tcp", "unix"} {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = socketPath(t)
			}
			for name, dialer := range map[string]func(string, string) (net.Conn, error){"net": net.Dial, "unet": unet.Dial} {
				ln, err := net.Listen(network, address)
				if err != nil {
					t.Fatal(err)
				}
				nc, err := dialer(network, ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				peer, err := ln.Accept()
				if err != nil {
					t.Fatal(err)
				}
				opened := make(chan any, 1)
				h := Handler{OnOpen: func(c *Conn) { opened <- c.Value() }, OnData: func(c *Conn, p []byte) { _, _ = c.Write(p) }}
				c, err := s.Enroll(nc, ConnOptions{Handler: &h, Value: name})
				if err != nil {
					t.Fatalf("%s, %s: %v", name, network, err)
				}
				if v := receive(t, "OnOpen", opened); v != name {
					t.Errorf("value %v", v)
				}
				_ = peer.SetDeadline(time.Now().Add(testPatience))
				exchange(t, peer, random(300_000, 1))
				if c.RemoteAddr() == nil {
					t.Error("no address")
				}
				_ = peer.Close()
				_ = ln.Close()
			}
		}
		await(t, "all are closed", func() bool { return s.Stats().Open == 0 })
		a, b := net.Pipe()
		defer b.Close()
		if _, err := s.Enroll(a, ConnOptions{}); err == nil {
			t.Error("a pipe was enrolled")
		}
		other := start(t, echoes(), o)
		nc := dial(t, other)
		if name, _ := s.Backend(); name != "net" {
			if _, err := s.Enroll(tls.Client(nc, &tls.Config{InsecureSkipVerify: true}), ConnOptions{}); err == nil {
				t.Error("a connection of crypto/tls was enrolled")
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Enroll(nc, ConnOptions{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a server that has ended: %v", err)
		}
		exchange(t, nc, []byte("still usable"))
	})
}

// TestEnrollWhileEnding enrolls connections while the server ends: each is refused and
// stays with the caller, or is opened and closed.
// Promise: unet/event/enroll-new-take
func TestEnrollWhileEnding(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		for range 20 {
			var opened, closed, taken atomic.Int64
			target := start(t, Handler{}, Options{Mode: o.Mode})
			s, err := New(nil, Handler{
				OnOpen:  func(*Conn) { opened.Add(1) },
				OnClose: func(*Conn, error) { closed.Add(1) },
			}, o)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range 4 {
				nc := dial(t, target)
				wg.Go(func() {
					if _, err := s.Enroll(nc, ConnOptions{}); err == nil {
						taken.Add(1)
					}
				})
			}
			runtime.Gosched()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if taken.Load() != opened.Load() || opened.Load() != closed.Load() {
				t.Fatalf("%d were taken, %d opened, %d closed", taken.Load(), opened.Load(), closed.Load())
			}
		}
	})
}

// TestAbortResetsSocketsOfUnet aborts connections that were accepted by a listener of package unet,
// and dialled by it.
func TestAbortResetsSocketsOfUnet(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		ln, err := unet.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(ln, Handler{OnData: func(c *Conn, _ []byte) { c.Abort() }}, o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		mine, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer mine.Close()
		dialled, err := unet.Dial("tcp", mine.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		peer, err := mine.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		if _, err := s.Enroll(dialled, ConnOptions{}); err != nil {
			t.Fatal(err)
		}
		for how, c := range map[string]net.Conn{"accepted": dial(t, s), "enrolled": peer} {
			_ = c.SetDeadline(time.Now().Add(testPatience))
			_, _ = c.Write([]byte("x"))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: the peer read %v", how, err)
			}
		}
	})
}
