// SPDX-License-Identifier: MIT

package unet_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// randomBytes returns n random bytes.
func randomBytes(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p) // never returns an error
	return p
}

// collect reads until the end, slowly at first, and returns the hash.
func collect(c net.Conn) <-chan [32]byte {
	ch := make(chan [32]byte, 1)
	go func() {
		time.Sleep(5 * time.Millisecond) // the sender has to wait for room
		h := sha256.New()
		_, _ = io.Copy(h, struct{ io.Reader }{c})
		ch <- [32]byte(h.Sum(nil))
	}()
	return ch
}

func TestReadFromFile(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		part := ringtest.Rounds(1<<20, 256<<10)
		data := randomBytes(5 * part)
		name := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		a, b := pair(t, s, "tcp")
		got := collect(b)
		rf := a.(io.ReaderFrom)
		limited := &io.LimitedReader{R: f, N: int64(part)}
		if n, err := rf.ReadFrom(limited); n != int64(part) || err != nil || limited.N != 0 {
			t.Fatalf("the first part: %d, %v, %d left", n, err, limited.N)
		}
		if n, err := io.Copy(a, f); n != int64(4*part) || err != nil {
			t.Fatalf("the rest: %d, %v", n, err)
		}
		_ = a.Close()
		if soon(t, "the file", got) != sha256.Sum256(data) {
			t.Error("the received bytes differ from the file")
		}
	})
}

func TestCopyBetweenConnections(t *testing.T) {
	for _, from := range []string{"tcp", "unix"} {
		for _, to := range []string{"tcp", "unix"} {
			t.Run(from+" to "+to, func(t *testing.T) {
				eachMode(t, func(t *testing.T, s *unet.System) {
					data := randomBytes(ringtest.Rounds(2<<20, 512<<10))
					a, in := pair(t, s, from)
					out, b := pair(t, s, to)
					got := collect(b)
					relay := start(func() error {
						n, err := io.Copy(out, in)
						if n != int64(len(data)) {
							err = errors.Join(err, errors.New("WriteTo or ReadFrom returned a wrong number of bytes"))
						}
						return errors.Join(err, out.Close())
					})
					if _, err := a.Write(data); err != nil {
						t.Fatal(err)
					}
					_ = a.Close()
					if err := soon(t, "the relay", relay); err != nil {
						t.Fatal(err)
					}
					if soon(t, "what was relayed", got) != sha256.Sum256(data) {
						t.Error("the received bytes differ from those sent")
					}
				})
			})
		}
	}
}

func TestReadFromAnythingElse(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		data := randomBytes(1 << 20)
		a, b := pair(t, s, "tcp")
		got := collect(b)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = w.Write(data[:1<<19])
			_ = w.Close()
		}()
		if n, err := io.Copy(a, r); n != 1<<19 || err != nil {
			t.Fatalf("a pipe: %d, %v", n, err)
		}
		_ = r.Close()
		if n, err := a.(io.ReaderFrom).ReadFrom(bytes.NewReader(data[1<<19:])); n != 1<<19 || err != nil {
			t.Fatalf("memory: %d, %v", n, err)
		}
		_ = a.Close()
		if soon(t, "the copies", got) != sha256.Sum256(data) {
			t.Error("the received bytes differ from those sent")
		}
	})
}

func TestReadFromKeepsDeadlinesAndClose(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		a, in := pair(t, s, "tcp")
		out, b := pair(t, s, "tcp")
		_ = out.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		go func() { _, _ = a.Write(make([]byte, 64<<20)) }()
		_, err := io.Copy(out, in)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a copy that the peer does not read: %v", err)
		}
		_ = b
		_ = in.SetReadDeadline(time.Now().Add(-time.Second))
		if _, err := io.Copy(out, in); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a copy past the deadline of its source: %v", err)
		}
		_ = out.Close()
		if _, err := out.(io.ReaderFrom).ReadFrom(in); !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a copy to a closed connection: %v", err)
		}
	})
}

func TestWritev(t *testing.T) {
	for _, mode := range modes()[1:] {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(network+"/"+mode.String(), func(t *testing.T) {
				a, b := pair(t, newSystem(t, mode), network)
				data := randomBytes(ringtest.Rounds(2<<20, 512<<10))
				var bufs net.Buffers
				for rest, i := data, 0; len(rest) > 0; i++ {
					n := min(len(rest), i%7*911)
					bufs = append(bufs, rest[:n])
					rest = rest[n:]
				}
				got := collect(b)
				n, err := a.(interface {
					Writev(*net.Buffers) (int64, error)
				}).Writev(&bufs)
				if n != int64(len(data)) || err != nil || len(bufs) != 0 {
					t.Fatalf("%d, %v, %d buffers left", n, err, len(bufs))
				}
				_ = a.Close()
				if soon(t, "the buffers", got) != sha256.Sum256(data) {
					t.Error("the received bytes differ from those sent")
				}
			})
		}
	}
}

// TestCopiesHoldOneSocketAtATime copies between two sockets, one of whose peers is silent
// or does not read. Meanwhile it closes either socket or the file that is sent, or sets a
// deadline on it. No such call may wait for the silent peer. Most proxies close the
// destination of one copy while its source is silent.
// Promise: unet/copy-sockets-file
func TestCopiesHoldOneSocketAtATime(t *testing.T) {
	type ends struct{ to, from, toPeer, fromPeer net.Conn }
	copies := map[string]func(e ends) error{
		"ReadFrom": func(e ends) error { _, err := e.to.(io.ReaderFrom).ReadFrom(e.from); return err },
		"ReadFrom limited": func(e ends) error {
			_, err := e.to.(io.ReaderFrom).ReadFrom(io.LimitReader(e.from, 1<<40))
			return err
		},
		"WriteTo": func(e ends) error { _, err := e.from.(io.WriterTo).WriteTo(e.to); return err },
		"io.Copy": func(e ends) error { _, err := io.Copy(e.to, e.from); return err },
	}
	past := time.Unix(1, 0)
	// Each of these calls returns at once. A call on the socket for which the copy waits
	// also ends the copy.
	calls := map[string]struct {
		call  func(e ends) error
		about string
	}{
		"close the destination":      {func(e ends) error { return e.to.Close() }, "to"},
		"close the source":           {func(e ends) error { return e.from.Close() }, "from"},
		"deadline of destination":    {func(e ends) error { return e.to.SetWriteDeadline(past) }, "to"},
		"deadline of source":         {func(e ends) error { return e.from.SetReadDeadline(past) }, "from"},
		"write to the destination":   {func(e ends) error { _, err := e.to.Write([]byte("x")); return err }, "read"},
		"deadlines of the other way": {func(e ends) error { return errors.Join(e.to.SetReadDeadline(past), e.from.SetWriteDeadline(past)) }, ""},
	}
	for _, networks := range [][2]string{{"tcp", "tcp"}, {"tcp", "unix"}, {"unix", "tcp"}} {
		for name, copy := range copies {
			if name == "WriteTo" && networks[1] == "unix" || strings.HasPrefix(name, "ReadFrom") && networks[0] == "unix" {
				continue // net.UnixConn has neither method
			}
			for what, c := range calls {
				for _, waits := range []string{"from", "to"} {
					if c.about == "read" && waits == "to" {
						continue // a write waits if the peer does not read
					}
					t.Run(fmt.Sprintf("%s to %s/%s/%s/waits for %s", networks[1], networks[0], name, what, waits), func(t *testing.T) {
						eachMode(t, func(t *testing.T, s *unet.System) {
							var e ends
							e.to, e.toPeer = pair(t, s, networks[0])
							e.from, e.fromPeer = pair(t, s, networks[1])
							if waits == "to" {
								shrink(t, e.to, e.toPeer)
								go func() {
									p := make([]byte, 64<<10)
									for err := error(nil); err == nil; {
										_, err = e.fromPeer.Write(p)
									}
								}()
							}
							copied := start(func() error { return copy(e) })
							waitForCopy(t, e.toPeer, waits)
							if err := soon(t, what, start(func() error { return c.call(e) })); err != nil {
								t.Errorf("%s: %v", what, err)
							}
							if c.about == waits {
								err := soon(t, "the copy", copied)
								if !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
									t.Errorf("the copy returned %v", err)
								}
							}
							for _, conn := range []net.Conn{e.to, e.from} {
								soon(t, "the last Close", start(func() error { _ = conn.Close(); return nil }))
							}
						})
					})
				}
			}
		}
	}
}

// shrink makes a connection buffer few unread bytes.
func shrink(t *testing.T, c, peer net.Conn) {
	t.Helper()
	type buffers interface {
		SetReadBuffer(int) error
		SetWriteBuffer(int) error
	}
	if err := errors.Join(c.(buffers).SetWriteBuffer(4096), peer.(buffers).SetReadBuffer(4096)); err != nil {
		t.Fatal(err)
	}
}

// waitForCopy gives a copy time to start its wait, most of the time.
func waitForCopy(t *testing.T, peer net.Conn, waits string) {
	t.Helper()
	if waits == "to" { // the copy has begun
		if _, err := peer.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * time.Millisecond)
}

// TestSentFileCanBeClosed closes a file while it is sent to a peer that does not read, and
// a pipe that another goroutine reads while it is copied.
// Promise: unet/copy-sockets-file
func TestSentFileCanBeClosed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	eachMode(t, func(t *testing.T, s *unet.System) {
		a, b := pair(t, s, "tcp")
		shrink(t, a, b)
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		copied := start(func() error { _, err := io.Copy(a, f); return err })
		waitForCopy(t, b, "to")
		if err := soon(t, "closing the file", start(f.Close)); err != nil {
			t.Error(err)
		}
		if err := soon(t, "closing the connection", start(a.Close)); err != nil {
			t.Error(err)
		}
		if err := soon(t, "the copy", copied); err == nil {
			t.Error("a copy that was ended succeeded")
		}
	})
}

// TestCloseWhileACopyWaitsForAPipe closes the destination of a copy from a pipe that another goroutine
// also reads: the copy waits until it may read.
// Promise: unet/copy-sockets-file
func TestCloseWhileACopyWaitsForAPipe(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		a, _ := pair(t, s, "tcp")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		other := start(func() error { _, err := r.Read(make([]byte, 1)); return err })
		time.Sleep(2 * time.Millisecond) // so that it reads, most of the time
		copied := start(func() error { _, err := io.Copy(a, r); return err })
		time.Sleep(2 * time.Millisecond)
		if err := soon(t, "closing the connection", start(a.Close)); err != nil {
			t.Error(err)
		}
		_ = w.Close()
		soon(t, "the other reader", other)
		soon(t, "the copy", copied)
		_ = r.Close()
	})
}

// TestCopyOfSmallAndLargePieces copies pieces whose sizes make the copy switch between its
// buffer and a pipe, each after the piece before has arrived, and ends at a limit.
// Promise: unet/copy-sockets-forwards
func TestCopyOfSmallAndLargePieces(t *testing.T) {
	sizes := []int{1, 4095, 4096, 4097, 1, 300_000, 10, 8192, 5, 4096}
	total := 0
	for _, n := range sizes {
		total += n
	}
	data := randomBytes(total)
	for _, network := range []string{"tcp", "unix"} {
		eachMode(t, func(t *testing.T, s *unet.System) {
			for _, limit := range []int{0, total - 4096, total} { // 0 means no limit
				from, source := pair(t, s, "tcp")
				to, sink := pair(t, s, network)
				var r io.Reader = source
				if limit > 0 {
					r = &io.LimitedReader{R: source, N: int64(limit)}
				}
				var n int64
				done := start(func() (err error) { n, err = io.Copy(to, r); return err })
				rest, left := data, limit
				if limit == 0 {
					left = total
				}
				for _, size := range sizes {
					if _, err := from.Write(rest[:size]); err != nil {
						t.Fatal(err)
					}
					_ = sink.SetReadDeadline(time.Now().Add(patience))
					got := make([]byte, min(size, left))
					if _, err := io.ReadFull(sink, got); err != nil || !bytes.Equal(got, rest[:len(got)]) {
						t.Fatalf("%s, limit %d: a piece of %d bytes: %v, or wrong data", network, limit, size, err)
					}
					rest, left = rest[size:], left-len(got)
				}
				if limit == 0 {
					_ = from.(interface{ CloseWrite() error }).CloseWrite()
					limit = total
				}
				if err := soon(t, "the copy", done); err != nil || n != int64(limit) {
					t.Errorf("%s: copied %d of %d bytes, %v", network, n, limit, err)
				}
			}
		})
	}
}

// TestWaitingCopyHoldsNoPipe counts the pipes while copies wait, after much data and a
// little: all of them have used the same pipe.
// Promise: unet/copy-sockets-forwards
func TestWaitingCopyHoldsNoPipe(t *testing.T) {
	s := newSystem(t, unet.ModePlain)
	before := len(ringtest.Descriptors(t, "pipe:"))
	for range 3 {
		from, source := pair(t, s, "tcp")
		to, sink := pair(t, s, "tcp")
		done := start(func() error { _, err := io.Copy(to, source); return err })
		for _, n := range []int{100_000, 1, 1} { // the second exchange ends the use of the pipe
			if _, err := from.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(sink, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		defer func() {
			_ = from.Close()
			if err := soon(t, "the copy", done); err != nil {
				t.Error(err)
			}
		}()
	}
	if n := len(ringtest.Descriptors(t, "pipe:")); n > before+2 {
		t.Errorf("%d descriptors of pipes, %d before", n, before)
	}
}
