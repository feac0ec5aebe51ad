// SPDX-License-Identifier: MIT

package unet_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// randomBytes returns n bytes that do not repeat.
func randomBytes(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p) // it always succeeds
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
			t.Error("other bytes arrived than the file has")
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
							err = errors.Join(err, errors.New("the number of bytes is wrong"))
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
						t.Error("other bytes arrived than were sent")
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
			t.Error("other bytes arrived than were sent")
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
			t.Fatalf("a copy that nobody reads: %v", err)
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
					t.Error("other bytes arrived than were sent")
				}
			})
		}
	}
}
