// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// startPackets starts a server without a listener that receives datagrams.
func startPackets(t testing.TB, network, address string, h PacketHandler, o Options) *PacketConn {
	t.Helper()
	s, err := New(nil, Handler{}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	c, err := s.ListenPacket(network, address, h)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// echoPackets sends back each datagram.
func echoPackets(t testing.TB) PacketHandler {
	return PacketHandler{
		OnPacket: func(c *PacketConn, from Peer, p []byte) {
			if _, err := c.WriteTo(p, from); err != nil {
				t.Errorf("WriteTo %v: %v", from, err)
			}
		},
		OnError: func(_ *PacketConn, peer Peer, err error) { t.Errorf("%v: %v", peer, err) },
	}
}

// packetClient returns a socket of package net; the end of the test closes it.
func packetClient(t testing.TB, network, address string) net.PacketConn {
	t.Helper()
	pc, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pc.Close() })
	_ = pc.SetDeadline(time.Now().Add(testPatience))
	return pc
}

// TestPacketEcho exchanges datagrams of all lengths, one after the other, with several
// clients at once.
// Promise: unet/event/datagrams-loops-delivered
func TestPacketEcho(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		for _, network := range []string{"udp", "udp4", "udp6", "unixgram"} {
			t.Run(network, func(t *testing.T) {
				address, own := "127.0.0.1:0", "127.0.0.1:0"
				dir := ""
				switch network {
				case "udp6":
					address, own = "[::1]:0", "[::1]:0"
					if pc, err := net.ListenPacket(network, own); err != nil {
						t.Skipf("needs IPv6 on the loopback: %v", err)
					} else {
						_ = pc.Close()
					}
				case "unixgram":
					if runtime.GOOS != "linux" {
						t.Skip("needs Unix datagram sockets")
					}
					dir = t.TempDir()
					address = filepath.Join(dir, "server")
				}
				c := startPackets(t, network, address, echoPackets(t), o)
				var wg sync.WaitGroup
				var alone sync.Mutex // a socket buffer holds one long datagram
				for i := range 4 {
					if dir != "" {
						own = filepath.Join(dir, fmt.Sprint(i))
					}
					pc := packetClient(t, network, own)
					wg.Go(func() {
						buf := make([]byte, 1<<17)
						for _, n := range []int{1, 0, 7, 1400, 9000, 60_000, 3} {
							p := random(n, uint64(n))
							alone.Lock()
							if _, err := pc.WriteTo(p, c.LocalAddr()); err != nil {
								t.Errorf("%d bytes: %v", n, err)
							}
							k, from, err := pc.ReadFrom(buf)
							alone.Unlock()
							if err != nil || !bytes.Equal(buf[:k], p) || from.String() != c.LocalAddr().String() {
								t.Errorf("%d bytes came back as %d from %v: %v", n, k, from, err)
								return
							}
						}
					})
				}
				wg.Wait()
				await(t, "the Stats count 28 datagrams", func() bool {
					st := c.Server().Stats()
					return st.PacketsReceived == 28 && st.PacketsSent == 28
				})
			})
		}
	})
}

// TestPacketWildcard lets the system choose the source address of the replies.
func TestPacketWildcard(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		c := startPackets(t, "udp", ":0", echoPackets(t), o)
		to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.LocalAddr().(*net.UDPAddr).Port}
		pc := packetClient(t, "udp4", "127.0.0.1:0")
		if _, err := pc.WriteTo([]byte("x"), to); err != nil {
			t.Fatal(err)
		}
		if n, from, err := pc.ReadFrom(make([]byte, 2)); n != 1 || err != nil {
			t.Error(n, from, err)
		}
	})
}

// TestPacketBurst sends datagrams before it reads a reply, from several goroutines, fewer
// than the socket buffers hold: no reply is missing, and they arrive in order.
// Promise: unet/event/datagrams-loops-delivered
func TestPacketBurst(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		c := startPackets(t, "udp", "127.0.0.1:0", echoPackets(t), o)
		var wg sync.WaitGroup
		for id := range 4 {
			pc := packetClient(t, "udp", "127.0.0.1:0")
			wg.Go(func() {
				const rounds, burst = 100, 16 // socket buffers hold four bursts
				var buf [64]byte
				for round := range rounds {
					for i := range burst {
						binary.NativeEndian.PutUint64(buf[:], uint64(id)<<32|uint64(round)<<16|uint64(i))
						if _, err := pc.WriteTo(buf[:8], c.LocalAddr()); err != nil {
							t.Error(err)
							return
						}
					}
					for i := range burst {
						n, _, err := pc.ReadFrom(buf[:])
						if got, want := binary.NativeEndian.Uint64(buf[:]), uint64(id)<<32|uint64(round)<<16|uint64(i); err != nil || n != 8 || got != want {
							t.Errorf("%d bytes, %#x, want %#x, %v", n, got, want, err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestPacketsFromGoroutines sends from goroutines, also while the loop sleeps.
// Promise: unet/event/datagrams-loops-delivered
func TestPacketsFromGoroutines(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		c := startPackets(t, "udp", "127.0.0.1:0", PacketHandler{}, o)
		pc := packetClient(t, "udp", "127.0.0.1:0")
		to := peerOf(pc.LocalAddr())
		const senders, each = 4, 100
		credit := make(chan struct{}, 20) // as many as the socket buffer holds
		var wg sync.WaitGroup
		for range senders {
			wg.Go(func() {
				for range each {
					credit <- struct{}{}
					if n, err := c.WriteTo([]byte("message"), to); n != 7 || err != nil {
						t.Error(n, err)
						return
					}
				}
			})
		}
		for i := range senders * each {
			if n, _, err := pc.ReadFrom(make([]byte, 10)); n != 7 || err != nil {
				t.Fatalf("after %d: %d, %v", i, n, err)
			}
			<-credit
		}
		wg.Wait()
	})
}

// TestPacketErrors compares errors with those of package net.
func TestPacketErrors(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		c := startPackets(t, "udp4", "127.0.0.1:0", PacketHandler{}, o)
		var oe *net.OpError
		for name, to := range map[string]string{"of another family": "[2001:db8::1]:9"} {
			if _, err := c.WriteTo([]byte("x"), peerOf(udpAddr(t, to))); !errors.As(err, &oe) || oe.Op != "write" {
				t.Errorf("a peer %s: %v", name, err)
			}
		}
		if _, err := c.WriteTo([]byte("x"), Peer{}); !errors.Is(err, errNoPeer) {
			t.Errorf("no peer: %v", err)
		}
		if _, err := c.WriteTo(make([]byte, 1<<16), peerOf(c.LocalAddr())); runtime.GOOS == "linux" && !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("too long: %v", err)
		}
		s := c.Server()
		if _, err := s.ListenPacket("tcp", "127.0.0.1:0", PacketHandler{}); !errors.As(err, &oe) || oe.Err != net.UnknownNetworkError("tcp") {
			t.Errorf("network tcp: %v", err)
		}
		if _, err := s.ListenPacket("udp", "127.0.0.1:bad", PacketHandler{}); err == nil {
			t.Error("a bad address")
		}
		connected, err := net.Dial("udp", "127.0.0.1:9")
		if err != nil {
			t.Fatal(err)
		}
		defer connected.Close()
		if _, err := s.EnrollPacket(connected.(net.PacketConn), PacketHandler{}); !errors.As(err, &oe) || !strings.Contains(err.Error(), "connected") {
			t.Errorf("a connected socket: %v", err)
		}
		if _, err := connected.Write(nil); err != nil {
			t.Errorf("Close of an enrolled socket: %v", err)
		}
		_ = c.Close()
		if _, err := c.WriteTo([]byte("x"), peerOf(c.LocalAddr())); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		_ = s.Close()
		if _, err := s.ListenPacket("udp", "127.0.0.1:0", PacketHandler{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the server's Close: %v", err)
		}
	})
}

func udpAddr(t testing.TB, s string) net.Addr {
	a, err := net.ResolveUDPAddr("udp", s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestPacketClose checks that OnClose is called once for each socket, after Close, the
// server's Close and Shutdown, and that the address is free afterwards.
// Promise: unet/event/datagrams-loops-delivered
func TestPacketClose(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		for _, how := range []string{"Close", "server's Close", "Shutdown"} {
			t.Run(how, func(t *testing.T) {
				var closed atomic.Int32
				done := make(chan struct{}, 10)
				c := startPackets(t, "udp", "127.0.0.1:0", PacketHandler{
					OnClose: func(_ *PacketConn, err error) {
						if err != nil {
							t.Error(err)
						}
						closed.Add(1)
						done <- struct{}{}
					},
				}, o)
				s, want := c.Server(), int32(len(c.all))
				switch how {
				case "Close":
					_, _ = c.Close(), c.Close()
					for range want {
						receive(t, "OnClose", done)
					}
				case "Shutdown":
					if err := s.Shutdown(context.Background()); err != nil {
						t.Error(err)
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if n := closed.Load(); n != want {
					t.Errorf("OnClose was called %d times for %d sockets", n, want)
				}
				await(t, "the address is free", func() bool {
					pc, err := net.ListenPacket("udp", c.LocalAddr().String())
					if err == nil {
						_ = pc.Close()
					}
					return err == nil
				})
			})
		}
	})
}

// TestPacketShutdown checks that datagrams that had arrived get replies.
// Promise: unet/event/datagrams-loops-delivered
func TestPacketShutdown(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		const n = 30
		first, released := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		var once sync.Once
		c := startPackets(t, "udp", "127.0.0.1:0", PacketHandler{
			OnPacket: func(c *PacketConn, from Peer, p []byte) {
				once.Do(func() { close(first); <-released })
				if _, err := c.WriteTo(p, from); err != nil {
					t.Errorf("WriteTo: %v", err)
				}
			},
		}, o)
		t.Cleanup(release) // before the server closes, if the test fails
		pc := packetClient(t, "udp", "127.0.0.1:0")
		var want []string
		for i := range n {
			want = append(want, fmt.Sprint("datagram ", i))
			if _, err := pc.WriteTo([]byte(want[i]), c.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		receive(t, "datagram", first)
		done := make(chan error, 1)
		go func() { done <- c.Server().Shutdown(context.Background()) }()
		await(t, "the server ends", c.Server().leaving.Load)
		release()
		if err := receive(t, "end of Shutdown", done); err != nil {
			t.Error(err)
		}
		var got []string
		buf := make([]byte, 100)
		for range n {
			k, _, err := pc.ReadFrom(buf)
			if err != nil {
				t.Fatalf("after %d: %v", len(got), err)
			}
			got = append(got, string(buf[:k]))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}

// TestEnrollPacket enrolls sockets of package net, UDP and Unix.
func TestEnrollPacket(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		s := startPackets(t, "udp", "127.0.0.1:0", PacketHandler{}, o).Server()
		theirs, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.EnrollPacket(theirs, echoPackets(t))
		if err != nil {
			t.Fatal(err)
		}
		pc := packetClient(t, "udp", "127.0.0.1:0")
		if _, err := pc.WriteTo([]byte("x"), c.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if n, _, err := pc.ReadFrom(make([]byte, 2)); n != 1 || err != nil {
			t.Error(n, err)
		}
	})
}

// TestPacketPanics checks that a panic with OnPanic set, and runtime.Goexit, end only the
// call.
// Promise: unet/event/datagrams-loops-delivered
func TestPacketPanics(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		var panics atomic.Int32
		c := startPackets(t, "udp", "127.0.0.1:0", PacketHandler{
			OnPacket: func(c *PacketConn, from Peer, p []byte) {
				_, _ = c.WriteTo(p, from)
				switch string(p) {
				case "panic":
					panic("as asked")
				case "exit":
					runtime.Goexit()
				}
			},
			OnPanic: func(_ *PacketConn, value any) {
				if value != "as asked" {
					t.Error(value)
				}
				panics.Add(1)
			},
		}, o)
		pc := packetClient(t, "udp", "127.0.0.1:0")
		buf := make([]byte, 10)
		for i := range 20 {
			word := []string{"panic", "exit", "fine"}[i%3]
			if _, err := pc.WriteTo([]byte(word), c.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			if n, _, err := pc.ReadFrom(buf); string(buf[:n]) != word {
				t.Fatalf("got %q, %v; want %q", buf[:n], err, word)
			}
		}
		if panics.Load() != 7 {
			t.Errorf("OnPanic was called %d times", panics.Load())
		}
	})
}

// TestUnixPeers checks datagrams to abstract names and from sockets without a name, the
// error for a receiver that is full or missing, and the error for a datagram that is too
// long.
// Promise: unet/event/datagrams-loops-delivered
func TestUnixPeers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs abstract names")
	}
	overModes(t, func(t *testing.T, o Options) {
		dir := t.TempDir()
		type packet struct {
			from Peer
			n    int
		}
		got, failed := make(chan packet, 10), make(chan error, 100)
		c := startPackets(t, "unixgram", filepath.Join(dir, "server"), PacketHandler{
			OnPacket: func(c *PacketConn, from Peer, p []byte) {
				got <- packet{from, len(p)}
				if string(p) == "answer" {
					_, _ = c.WriteTo(p, from)
				}
				if string(p) == "missing" {
					if _, err := c.WriteTo(p, Peer{Name: filepath.Join(dir, "missing")}); err != nil {
						failed <- err
					}
				}
			},
			OnError: func(_ *PacketConn, peer Peer, err error) {
				select {
				case failed <- err:
				default: // the test has enough of them
				}
			},
		}, o)
		abstract := packetClient(t, "unixgram", fmt.Sprintf("@ringside-%s-%d", filepath.Base(dir), syscall.Getpid()))
		if _, err := abstract.WriteTo([]byte("answer"), c.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if p := receive(t, "datagram", got); p.from.Name != abstract.LocalAddr().String() {
			t.Errorf("from %q, want %v", p.from.Name, abstract.LocalAddr())
		}
		if n, _, err := abstract.ReadFrom(make([]byte, 10)); n != 6 || err != nil {
			t.Error(n, err)
		}
		const longest = 108
		name := fmt.Sprintf("@ringside-%s-%d", filepath.Base(dir), syscall.Getpid())
		long := packetClient(t, "unixgram", name+strings.Repeat("x", longest-len(name)))
		if _, err := long.WriteTo([]byte("answer"), c.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		receive(t, "datagram", got)
		if n, _, err := long.ReadFrom(make([]byte, 10)); n != 6 || err != nil {
			t.Errorf("to the longest abstract name: %d, %v", n, err)
		}
		withNUL := strings.Replace(abstract.LocalAddr().String(), "@", "\x00", 1)
		if _, err := c.WriteTo([]byte("NUL"), Peer{Name: withNUL}); err != nil {
			t.Errorf("to an abstract name that begins with a NUL: %v", err)
		}
		if n, _, err := abstract.ReadFrom(make([]byte, 10)); n != 3 || err != nil {
			t.Errorf("at an abstract name that begins with a NUL: %d, %v", n, err)
		}
		unnamed, err := net.Dial("unixgram", c.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer unnamed.Close()
		if _, err := unnamed.Write([]byte("missing")); err != nil {
			t.Fatal(err)
		}
		if p := receive(t, "datagram", got); p.from != (Peer{}) {
			t.Errorf("from %+v", p.from)
		}
		if err := receive(t, "error", failed); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("to a missing name: %v", err)
		}
		if _, err := unnamed.Write(make([]byte, 70_000)); err != nil {
			t.Fatal(err)
		}
		if err := receive(t, "error", failed); !errors.Is(err, errPacketTooLong) {
			t.Errorf("a datagram that is too long: %v", err)
		}
		if name, _ := c.Server().Backend(); name == ModeNet.String() {
			return // the datagram waits for space
		}
		for i := 0; ; i++ {
			_, err := c.WriteTo([]byte("x"), peerOf(abstract.LocalAddr()))
			if err == nil && (len(failed) > 0 || i == 1000) { // the loop was busy, and sends them later
				err = receive(t, "error", failed)
			}
			if errors.Is(err, syscall.EAGAIN) {
				break
			}
			if err != nil {
				t.Fatalf("to a full receiver, after %d: %v", i, err)
			}
		}
	})
}

// TestPacketMapKey uses a Peer as the key of a map.
func TestPacketMapKey(t *testing.T) {
	m := map[Peer]int{peerOf(udpAddr(t, "127.0.0.1:1")): 1, {Name: "/x"}: 2}
	if m[peerOf(udpAddr(t, "127.0.0.1:1"))] != 1 || m[peerOf(&net.UnixAddr{Name: "/x"})] != 2 || peerOf((*net.UDPAddr)(nil)) != (Peer{}) {
		t.Error(m)
	}
	if s := peerOf(udpAddr(t, "[::1]:2")).String() + (Peer{Name: "@a"}).String(); s != "[::1]:2@a" {
		t.Error(s)
	}
}

// gatherer is a handler that passes a copy of each datagram to a channel. calls counts the
// calls.
func gatherer(got chan<- []byte, calls *atomic.Int32, segments bool) PacketHandler {
	h := PacketHandler{OnPacket: func(_ *PacketConn, _ Peer, p []byte) {
		calls.Add(1)
		got <- bytes.Clone(p)
	}}
	if segments {
		h.OnSegments = func(_ *PacketConn, _ Peer, p []byte, size int) {
			calls.Add(1)
			for one := range slices.Chunk(p, size) {
				got <- bytes.Clone(one)
			}
		}
	}
	return h
}

// TestPacketSegments sends segments from a goroutine and from a callback, and receives them
// joined and not. No datagram is missing or changed, and they arrive in order.
// Promise: unet/event/segments-loops-datagrams
func TestPacketSegments(t *testing.T) {
	data := random(20_500, 1)
	const size, want = 1000, 21
	overModes(t, func(t *testing.T, o Options) {
		for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
			if pc, err := net.ListenPacket("udp", address); err != nil {
				t.Logf("needs IPv6 on the loopback: %v", err)
				continue
			} else {
				_ = pc.Close()
			}
			for _, gro := range []bool{false, true} {
				for _, segments := range []bool{false, true} {
					got, calls := make(chan []byte, 1000), new(atomic.Int32)
					in := startPackets(t, "udp", address, gatherer(got, calls, segments), o)
					if err := in.SetGRO(gro); err != nil {
						t.Fatal(err)
					}
					to, sent := peerOf(in.LocalAddr()), make(chan error, 2)
					write := func(c *PacketConn) {
						n, err := c.WriteSegments(data, size, to)
						if err == nil && n != len(data) {
							err = fmt.Errorf("WriteSegments returned %d", n)
						}
						sent <- err
					}
					out := startPackets(t, "udp", address, PacketHandler{OnPacket: func(c *PacketConn, _ Peer, _ []byte) { write(c) }}, o)
					write(out)
					receiveSegments(t, got, data, size)
					if _, err := out.WriteTo([]byte("go"), peerOf(out.LocalAddr())); err != nil {
						t.Fatal(err)
					}
					receiveSegments(t, got, data, size)
					for range 2 {
						if err := receive(t, "return of WriteSegments", sent); err != nil {
							t.Error(err)
						}
					}
					most := int32(2 * want)
					if gro && segments && o.Mode != ModeNet {
						most = 4
					}
					if n := calls.Load(); n > most {
						t.Errorf("%s, joined %v, OnSegments %v: %d calls", address, gro, segments, n)
					}
					if n := in.Server().Stats().PacketsReceived; n != 2*want {
						t.Errorf("%d datagrams were received", n)
					}
					await(t, "the Stats count 43 datagrams", func() bool { return out.Server().Stats().PacketsSent == 2*want+1 })
					_, _ = in.Server().Close(), out.Server().Close()
				}
			}
		}
	})
}

// receiveSegments receives the datagrams of data.
func receiveSegments(t *testing.T, got <-chan []byte, data []byte, size int) {
	t.Helper()
	for i := 0; len(data) > 0; i++ {
		want := data[:min(size, len(data))]
		if p := receive(t, "datagram", got); !bytes.Equal(p, want) {
			t.Fatalf("datagram %d has %d bytes, or wrong data, want %d", i, len(p), len(want))
		}
		data = data[len(want):]
	}
}

// TestPacketSegmentSizes sends segments of all kinds of sizes between single datagrams.
// Promise: unet/event/segments-loops-datagrams
func TestPacketSegmentSizes(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		got, calls := make(chan []byte, 1000), new(atomic.Int32)
		in := startPackets(t, "udp", "127.0.0.1:0", gatherer(got, calls, false), o)
		out := startPackets(t, "udp", "127.0.0.1:0", PacketHandler{}, o)
		to := peerOf(in.LocalAddr())
		for _, c := range []struct{ n, size int }{
			{0, 0}, {0, 7}, {10, -1}, {10, 0}, {10, 10}, {10, 11}, {10, 9}, {150, 1}, {64, 1}, {65, 1},
			{70_000, 1400}, {30_000, 30_000}, {60_000, 30_000},
		} {
			data := random(c.n, uint64(c.n+c.size))
			if n, err := out.WriteSegments(data, c.size, to); n != c.n || err != nil {
				t.Fatalf("%+v: %d, %v", c, n, err)
			}
			if _, err := out.WriteTo([]byte("between"), to); err != nil {
				t.Fatal(err)
			}
			if c.size <= 0 || c.n == 0 {
				c.size = max(c.n, 1)
			}
			if c.n == 0 {
				if p := receive(t, "datagram", got); len(p) != 0 {
					t.Errorf("%d bytes", len(p))
				}
			}
			receiveSegments(t, got, data, c.size)
			receiveSegments(t, got, []byte("between"), 7)
		}
		await(t, "nothing is pending", func() bool { return out.Pending() == 0 })
		if _, err := out.WriteSegments(make([]byte, 200_000), 70_000, to); runtime.GOOS == "linux" && !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("datagrams that are too long: %v", err)
		}
	})
}

// TestPacketSegmentsOfUnix checks the errors of a Unix socket.
// Promise: unet/event/segments-loops-datagrams
func TestPacketSegmentsOfUnix(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Unix datagram sockets")
	}
	overModes(t, func(t *testing.T, o Options) {
		got, calls := make(chan []byte, 10), new(atomic.Int32)
		c := startPackets(t, "unixgram", filepath.Join(t.TempDir(), "s"), gatherer(got, calls, true), o)
		to := peerOf(c.LocalAddr())
		var oe *net.OpError
		if _, err := c.WriteSegments([]byte("abc"), 2, to); !errors.Is(err, errNoSegments) || !errors.As(err, &oe) {
			t.Errorf("WriteSegments: %v", err)
		}
		if err := c.SetGRO(true); !errors.Is(err, errNoSegments) || !errors.As(err, &oe) {
			t.Errorf("SetGRO: %v", err)
		}
		if n, err := c.WriteSegments([]byte("abc"), 3, to); n != 3 || err != nil {
			t.Errorf("one datagram: %d, %v", n, err)
		}
		receiveSegments(t, got, []byte("abc"), 3)
	})
}

// TestPacketPause pauses in a callback, with more datagrams waiting, some of them joined.
// The handler gets none of them before ResumeRead, Shutdown delivers them, and Close does
// not.
// Promise: unet/event/packetconn-pauseread-holds
func TestPacketPause(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		for _, how := range []string{"ResumeRead", "Shutdown", "Close"} {
			for _, gro := range []bool{false, true} {
				t.Run(fmt.Sprint(how, ", joined ", gro), func(t *testing.T) { pausePackets(t, o, how, gro) })
			}
		}
	})
}

func pausePackets(t *testing.T, o Options, how string, gro bool) {
	o.Loops = 1
	var paused, ended atomic.Bool // Shutdown ends the pause
	got, calls, closed := make(chan []byte, 1000), new(atomic.Int32), make(chan struct{}, 10)
	gather := gatherer(got, calls, false).OnPacket
	c := startPackets(t, "udp", "127.0.0.1:0", PacketHandler{
		OnPacket: func(c *PacketConn, from Peer, p []byte) {
			if paused.Load() && !ended.Load() {
				t.Errorf("OnPacket was called while reading was paused")
			}
			if string(p) == "stop" {
				paused.Store(true)
				c.PauseRead()
			}
			gather(c, from, p)
		},
		OnClose: func(*PacketConn, error) { closed <- struct{}{} },
	}, o)
	if err := c.SetGRO(gro); err != nil {
		t.Fatal(err)
	}
	other, err := c.Server().ListenPacket("udp", "127.0.0.1:0", echoPackets(t)) // of the same loop
	if err != nil {
		t.Fatal(err)
	}
	pc, to := packetClient(t, "udp", "127.0.0.1:0"), peerOf(c.LocalAddr())
	data := random(20_000, 1)
	copy(data[3000:], "stop")
	copy(data[9000:], "stop") // in what is delivered after the first pause
	want := slices.Collect(slices.Chunk(data, 1000))
	want[3], want[9] = []byte("stop"), []byte("stop")
	out := startPackets(t, "udp", "127.0.0.1:0", PacketHandler{}, o)
	for _, part := range []struct{ at, end int }{{0, 3}, {3, 4}, {4, 9}, {9, 10}, {10, 20}} {
		p := data[part.at*1000 : part.end*1000]
		if part.end == part.at+1 {
			p = p[:4]
		}
		if _, err := out.WriteSegments(p, 1000, to); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all was sent", func() bool { return out.Pending() == 0 })
	turns := func() { // The loop waits and works several times.
		t.Helper()
		for range 20 {
			if _, err := pc.WriteTo([]byte("turn"), other.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := pc.ReadFrom(make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
		}
	}
	next := func(want [][]byte) {
		t.Helper()
		for i, w := range want {
			if p := receive(t, fmt.Sprintf("datagram %d of %d", i, len(want)), got); !bytes.Equal(p, w) {
				t.Fatalf("datagram %d of %d has %d bytes, want %d", i, len(want), len(p), len(w))
			}
		}
	}
	next(want[:4])
	turns()
	paused.Store(false)
	switch how {
	case "ResumeRead":
		c.ResumeRead()
		next(want[4:10])
		turns()
		paused.Store(false)
		c.ResumeRead()
		next(want[10:])
	case "Shutdown":
		ended.Store(true)
		done := make(chan error, 1)
		go func() { done <- c.Server().Shutdown(context.Background()) }()
		if err := receive(t, "end of Shutdown", done); err != nil {
			t.Error(err)
		}
		next(want[4:])
	case "Close":
		paused.Store(true)
		_ = c.Close()
		receive(t, "OnClose", closed)
	}
	if len(got) != 0 {
		t.Errorf("%d datagrams too many", len(got))
	}
}

// TestPacketGoexit ends the goroutine in each call, while more datagrams have been received,
// some of them joined: each is delivered.
// Promise: unet/event/datagrams-loops-delivered
func TestPacketGoexit(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		for _, gro := range []bool{false, true} {
			got, calls := make(chan []byte, 1000), new(atomic.Int32)
			first, released := make(chan struct{}, 1), make(chan struct{})
			release := sync.OnceFunc(func() { close(released) })
			gather := gatherer(got, calls, false).OnPacket
			c := startPackets(t, "udp", "127.0.0.1:0", PacketHandler{OnPacket: func(c *PacketConn, from Peer, p []byte) {
				if gather(c, from, p); calls.Load() == 1 {
					first <- struct{}{}
					<-released
				}
				runtime.Goexit()
			}}, o)
			t.Cleanup(release) // before the server closes, if the test fails
			if err := c.SetGRO(gro); err != nil {
				t.Fatal(err)
			}
			out, to := startPackets(t, "udp", "127.0.0.1:0", PacketHandler{}, o), peerOf(c.LocalAddr())
			data := random(30_000, 1)
			for part := range slices.Chunk(data, 5000) {
				if _, err := out.WriteSegments(part, 1000, to); err != nil {
					t.Fatal(err)
				}
			}
			receive(t, "datagram", first)
			release()
			receiveSegments(t, got, data, 1000)
		}
	})
}
