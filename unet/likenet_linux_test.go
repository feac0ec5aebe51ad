// SPDX-License-Identifier: MIT

package unet_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/unet"
)

// The tests of this file make the same calls on every implementation. The results of
// package net's connections are the expected ones.

// asNet runs f on every implementation and compares its results.
func asNet(t *testing.T, f func(t *testing.T, s *unet.System) []string) {
	t.Helper()
	var want []string
	eachMode(t, func(t *testing.T, s *unet.System) {
		got := f(t, s)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n\t%q\nwant the results of package net\n\t%q", got, want)
		}
	})
}

// TestRawReadThatGivesUp uses functions of RawConn.Read that leave data behind: one waits
// for more until a deadline, one panics. The next Read must find the data.
// Promise: unet/differences-package-net
func TestRawReadThatGivesUp(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b net.Conn) {
		raw, err := a.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Write([]byte("SSH")); err != nil {
			t.Fatal(err)
		}
		peek := func(fd uintptr) int {
			n, _, _ := syscall.Recvfrom(int(fd), make([]byte, 10), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return n
		}
		if err := raw.Read(func(fd uintptr) bool { return peek(fd) == 3 }); err != nil { // until the data has arrived
			t.Fatal(err)
		}
		_ = a.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		err = raw.Read(func(fd uintptr) bool { return peek(fd) >= 10 }) // the ten bytes never come
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("waiting for ten bytes: %v", err)
		}
		_ = a.SetReadDeadline(time.Now().Add(patience))
		p := make([]byte, 1)
		if n, err := a.Read(p); n != 1 || err != nil {
			t.Errorf("after a function that timed out: %d, %v", n, err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = raw.Read(func(uintptr) bool { panic("a function that fails") })
		}()
		if n, err := a.Read(p); n != 1 || err != nil {
			t.Errorf("after a function that panicked: %d, %v", n, err)
		}
	})
}

// TestFileIsThatOfNet compares the results of File: a file with deadlines. Its method Fd
// makes the descriptor blocking, as programs expect that get it.
// Promise: unet/differences-package-net
func TestFileIsThatOfNet(t *testing.T) {
	for _, network := range []string{"tcp", "unix", "udp4", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			asNet(t, func(t *testing.T, s *unet.System) (all []string) {
				var of []any
				if network == "tcp" || network == "unix" {
					l := listen(t, s, network)
					a, b := pair(t, s, network)
					of = []any{l, a, b}
				} else {
					of = []any{listenPacket(t, s, network)}
				}
				for _, o := range of {
					f, err := o.(interface{ File() (*os.File, error) }).File()
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, describe(f.SetDeadline(time.Now().Add(time.Hour))))
					before, _ := blocking(o.(syscall.Conn))
					f.Fd()
					after, _ := blocking(o.(syscall.Conn))
					all = append(all, before, after)
					_ = f.Close()
				}
				return all
			})
		})
	}
}

// blocking describes whether a descriptor is blocking.
func blocking(c syscall.Conn) (string, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return "", err
	}
	var flags uintptr
	err = raw.Control(func(fd uintptr) {
		flags, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
	})
	if flags&syscall.O_NONBLOCK == 0 {
		return "blocking", err
	}
	return "non-blocking", err
}

// TestConnectionHandedToAChild passes a connection to a program that reads to the end, as
// inetd does.
func TestConnectionHandedToAChild(t *testing.T) {
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Skip("needs the program cat")
	}
	eachPair(t, func(t *testing.T, a, b net.Conn) {
		f, err := a.(common).File()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(cat)
		cmd.Stdin, cmd.Stdout = f, f
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		_ = a.Close()
		time.Sleep(5 * time.Millisecond) // so that the program waits, most of the time
		_, _ = b.Write([]byte("hello"))
		_ = b.(common).CloseWrite()
		answer, err := io.ReadAll(b)
		if string(answer) != "hello" || err != nil {
			t.Errorf("%q, %v", answer, err)
		}
		if err := soon(t, "the program", start(cmd.Wait)); err != nil {
			t.Error(err)
		}
	})
}

// TestPortsOutOfRange sends to ports that do not fit in 16 bits.
// Promise: unet/differences-package-net
func TestPortsOutOfRange(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			asNet(t, func(t *testing.T, s *unet.System) (all []string) {
				c, target := listenPacket(t, s, network), listenPacket(t, s, network)
				to := *target.LocalAddr().(*net.UDPAddr)
				for _, off := range []int{65536, 131072, -65536} {
					a := to
					a.Port += off
					_, err := c.WriteTo([]byte("x"), &a)
					all = append(all, describe(err))
					_, _, err = c.(interface {
						WriteMsgUDP(p, oob []byte, addr *net.UDPAddr) (int, int, error)
					}).WriteMsgUDP([]byte("x"), nil, &a)
					all = append(all, describe(err))
				}
				_ = target.SetReadDeadline(time.Unix(1, 0))
				if n, _, err := target.ReadFrom(make([]byte, 8)); err == nil {
					t.Errorf("%d bytes arrived, want 0", n)
				}
				return all
			})
		})
	}
}

// TestMessageFlags compares the flags of messages that fit and of messages that do not.
// Promise: unet/differences-package-net
func TestMessageFlags(t *testing.T) {
	asNet(t, func(t *testing.T, s *unet.System) (all []string) {
		a, b := listenPacket(t, s, "udp4"), listenPacket(t, s, "udp4")
		for _, size := range []int{8, 9} {
			_, _ = a.WriteTo(make([]byte, size), b.LocalAddr())
			n, oobn, flags, _, err := b.(interface {
				ReadMsgUDP(p, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error)
			}).ReadMsgUDP(make([]byte, 8), make([]byte, 8))
			all = append(all, describe(err), string(rune('0'+n)), string(rune('0'+oobn)), string(rune(flags)))
		}
		return all
	})
}

// TestCopyErrorsAreThoseOfNet compares the errors of copies whose source passed its
// deadline or was closed.
// Promise: unet/copy-sockets-forwards
// Promise: unet/differences-package-net
func TestCopyErrorsAreThoseOfNet(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			asNet(t, func(t *testing.T, s *unet.System) (all []string) {
				to, _ := pair(t, s, "tcp")
				from, _ := pair(t, s, network)
				_ = from.SetReadDeadline(time.Unix(1, 0))
				_, err := to.(io.ReaderFrom).ReadFrom(from)
				all = append(all, describe(err))
				_ = from.Close()
				_, err = to.(io.ReaderFrom).ReadFrom(from)
				all = append(all, describe(err))
				_ = to.Close()
				_, err = to.(io.ReaderFrom).ReadFrom(from)
				all = append(all, describe(err))
				from, peer := pair(t, s, network)
				if _, err := peer.Write([]byte("data")); err != nil {
					t.Fatal(err)
				}
				_ = peer.Close()
				for range 2 { // data, and its end
					_, err = to.(io.ReaderFrom).ReadFrom(from)
					all = append(all, describe(err))
				}
				return all
			})
		})
	}
}

// TestSendFileErrorsAreThoseOfNet compares the errors of copies from a file to a connection that passed its
// deadline or was closed, with data to send and without.
// Promise: unet/differences-package-net
func TestSendFileErrorsAreThoseOfNet(t *testing.T) {
	for _, data := range []string{"data", ""} {
		asNet(t, func(t *testing.T, s *unet.System) (all []string) {
			name := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			to, _ := pair(t, s, "tcp")
			send := func() {
				_, err := f.Seek(0, io.SeekStart)
				if err != nil {
					t.Fatal(err)
				}
				_, err = to.(io.ReaderFrom).ReadFrom(f)
				ends := strings.NewReplacer(to.LocalAddr().String(), "", to.RemoteAddr().String(), "")
				all = append(all, ends.Replace(describe(err)))
			}
			_ = to.SetWriteDeadline(time.Unix(1, 0))
			send()
			_ = to.Close()
			send()
			return all
		})
	}
}

// TestWritevErrorsAreThoseOfNet compares Writev with net.Buffers.WriteTo on a connection of
// package net.
// Promise: unet/differences-package-net
func TestWritevErrorsAreThoseOfNet(t *testing.T) {
	asNet(t, func(t *testing.T, s *unet.System) (all []string) {
		a, b := pair(t, s, "tcp")
		vec := func() error {
			bufs := net.Buffers{make([]byte, 4096), make([]byte, 4096)}
			if w, ok := a.(interface {
				Writev(*net.Buffers) (int64, error)
			}); ok {
				_, err := w.Writev(&bufs)
				return err
			}
			_, err := bufs.WriteTo(a)
			return err
		}
		_ = a.SetWriteDeadline(time.Unix(1, 0))
		all = append(all, describe(vec()))
		_ = a.SetWriteDeadline(time.Time{})
		_ = b.Close() // from now on writes cause a reset
		err := vec()
		for ; err == nil; err = vec() {
			time.Sleep(time.Millisecond)
		}
		for errors.Is(err, syscall.ECONNRESET) {
			err = vec()
		}
		all = append(all, describe(err))
		_ = a.Close()
		return append(all, describe(vec()))
	})
}

// TestMethodsAreThoseOfNet compares the methods of the types; the list has the methods that
// package net lacks.
// Promise: unet/differences-package-net
func TestMethodsAreThoseOfNet(t *testing.T) {
	for _, c := range []struct {
		ours, nets any
		more       []string
	}{
		{(*unet.TCPConn)(nil), (*net.TCPConn)(nil), []string{"SetUserTimeout", "Writev"}},
		{(*unet.UnixConn)(nil), (*net.UnixConn)(nil), []string{"Writev"}},
		{(*unet.UDPConn)(nil), (*net.UDPConn)(nil), []string{"ReadBatch", "SetGRO", "WriteBatch"}},
		{(*unet.UnixgramConn)(nil), (*net.UnixConn)(nil), []string{"ReadBatch", "WriteBatch"}},
		{(*unet.TCPListener)(nil), (*net.TCPListener)(nil), nil},
		{(*unet.UnixListener)(nil), (*net.UnixListener)(nil), nil},
	} {
		ours, nets := reflect.TypeOf(c.ours), reflect.TypeOf(c.nets)
		for i := range nets.NumMethod() {
			if name := nets.Method(i).Name; !has(ours, name) {
				t.Errorf("%v lacks the method %s", ours, name)
			}
		}
		for i := range ours.NumMethod() {
			if name := ours.Method(i).Name; !has(nets, name) && !slices.Contains(c.more, name) {
				t.Errorf("%v has the method %s, which %v lacks", ours, name, nets)
			}
		}
	}
}

func has(t reflect.Type, name string) bool { _, ok := t.MethodByName(name); return ok }

// TestProgramsMaySetFinalizers sets finalizers on values of the package and drops them: the
// finalizer runs, and the socket is closed.
// Promise: unet/differences-package-net
func TestProgramsMaySetFinalizers(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		var ran atomic.Int32
		peer := finalized(t, s, &ran)
		closed := start(func() error { _, err := peer.Read(make([]byte, 1)); return err })
		for ran.Load() < 4 {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		for {
			select {
			case err := <-closed:
				if err != io.EOF {
					t.Errorf("the peer of a dropped connection: %v", err)
				}
				return
			default:
				runtime.GC()
			}
		}
	})
}

// finalized drops a connection and more, and returns the peer.
func finalized(t *testing.T, s *unet.System, ran *atomic.Int32) net.Conn {
	l, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	u, err := s.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ul, err := s.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []any{l, c, u, ul} {
		switch o := o.(type) {
		case *unet.TCPListener:
			runtime.SetFinalizer(o, func(*unet.TCPListener) { ran.Add(1) })
		case *unet.TCPConn:
			runtime.SetFinalizer(o, func(*unet.TCPConn) { ran.Add(1) })
		case *unet.UDPConn:
			runtime.SetFinalizer(o, func(*unet.UDPConn) { ran.Add(1) })
		case *unet.UnixListener:
			runtime.SetFinalizer(o, func(*unet.UnixListener) { ran.Add(1) })
		default:
			ran.Add(1) // package net's
		}
	}
	return peer
}

// TestDroppedUnixListenerKeepsItsFile drops a listener whose copy was passed on.
// Promise: unet/differences-package-net
func TestDroppedUnixListenerKeepsItsFile(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		path := t.TempDir() + "/s"
		f := handOver(t, s, path)
		defer f.Close()
		for range 5 {
			runtime.GC()
			time.Sleep(2 * time.Millisecond)
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	})
}

func handOver(t *testing.T, s *unet.System, path string) *os.File {
	l, err := s.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDialWithOneDescriptor dials with one free descriptor, which package net needs. An
// explicit mode needs more and fails; the error is temporary.
// Promise: unet/differences-package-net
func TestDialWithOneDescriptor(t *testing.T) {
	l := listen(t, netSystem(t), "tcp")
	dial := func(t *testing.T, s *unet.System) error {
		release := useUp(t)
		defer release()
		if fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0); err == nil {
			_ = syscall.Close(fd)
			t.Fatal("a descriptor is left")
		}
		freeOne(t)
		c, err := s.Dial("tcp", l.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	warm(t, l)
	auto, err := unet.NewSystem(unet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := dial(t, auto); err != nil {
		t.Errorf("with an automatic choice: %v", err)
	}
	for _, mode := range modes()[1:] {
		err := dial(t, newSystem(t, mode))
		var call *os.SyscallError
		var op *net.OpError
		if !errors.Is(err, syscall.EMFILE) || !errors.As(err, &call) || !errors.As(err, &op) || !op.Temporary() {
			t.Errorf("%v: %s", mode, describe(err))
		}
	}
}

// netSystem returns a System of package net's connections.
func netSystem(t *testing.T) *unet.System { return newSystem(t, unet.ModeNet) }

// warm makes package net open the descriptors that it keeps.
func warm(t *testing.T, l net.Listener) {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// freeOne closes one of the descriptors that useUp opened.
func freeOne(t *testing.T) {
	t.Helper()
	if err := syscall.Close(199); err != nil { // the highest one below the limit
		t.Fatal(err)
	}
}

// TestRawReadWaitsForMore passes a function to RawConn.Read that leaves the data that has arrived
// and waits for more. It must be called when more arrives, and not without end.
// Promise: unet/differences-package-net
func TestRawReadWaitsForMore(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		a, err := s.Dial("tcp", l.Addr().String()) // the only socket of its driver: it waits without the driver
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		raw, err := a.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = a.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		asked := false
		err = raw.Read(func(uintptr) bool { // the function does not read: it waits until there is something to read
			defer func() { asked = true }()
			return asked
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the function was called twice, and nothing had arrived: %v", err)
		}

		if _, err := b.Write([]byte("SSH")); err != nil {
			t.Fatal(err)
		}
		calls := 0
		peek := func(fd uintptr) int {
			calls++
			n, _, _ := syscall.Recvfrom(int(fd), make([]byte, 10), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return n
		}
		_ = a.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if err := raw.Read(func(fd uintptr) bool { return peek(fd) >= 10 }); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if calls > 20 {
			t.Errorf("the function was called %d times, and little had arrived", calls)
		}
		_ = a.SetReadDeadline(time.Now().Add(patience))
		got := start(func() error { return raw.Read(func(fd uintptr) bool { return peek(fd) >= 10 }) })
		if _, err := b.Write([]byte("-2.0-ringside")); err != nil {
			t.Fatal(err)
		}
		if err := soon(t, "a raw read", got); err != nil {
			t.Error(err)
		}
	})
}

// TestReadersRunInOrder writes to some connections, one after the other, while their readers wait. The
// readers run in this order on one processor: if the one whose data came last ran first, what it causes
// could overtake the others, such as the reader of an end of another connection.
func TestReadersRunInOrder(t *testing.T) {
	if sys.RaceEnabled {
		t.Skip("needs a build without the race detector, with which the runtime shuffles goroutines")
	}
	const readers, rounds = 4, 50
	eachMode(t, func(t *testing.T, s *unet.System) {
		if name, _ := s.Backend(); name == "net" {
			t.Skip("the runtime runs the readers of package net in the reverse order")
		}
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		ran := make(chan int, readers)
		var peers []net.Conn
		for i := range readers {
			reader, peer := pair(t, s, "tcp")
			peers = append(peers, peer)
			go func() {
				for p := make([]byte, 1); ; ran <- i {
					if _, err := reader.Read(p); err != nil {
						return
					}
				}
			}()
		}
		inOrder := 0
		for range rounds {
			for _, peer := range peers {
				if _, err := peer.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
			}
			var order []int
			for range readers {
				order = append(order, soon(t, "a reader", ran))
			}
			if slices.IsSorted(order) {
				inOrder++
			}
		}
		if inOrder < rounds/2 { // another program may take the processor between two writes
			t.Errorf("the readers ran in order in %d rounds of %d", inOrder, rounds)
		}
	})
}
