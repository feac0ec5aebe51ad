// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestStress exchanges random bytes on many connections while handlers stall, timers are
// reset, deadlines pass, reading pauses and sides close half or whole connections. No byte
// may be lost or changed unless the connection is broken, no reader may wait for ever, and
// each connection ends once. RINGSIDE_STRESS sets the duration, for example 5m.
// Promise: unet/event/callbacks-connection-run
func TestStress(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("RINGSIDE_STRESS"))
	if err != nil {
		long = 0
	}
	procs := []int{1, 2, 8}
	if testing.Short() {
		procs = procs[1:2]
	}
	for _, n := range procs {
		t.Run(fmt.Sprintf("procs=%d", n), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			defer debug.SetGCPercent(debug.SetGCPercent(1))
			overModes(t, func(t *testing.T, o Options) { stress(t, o, long) })
		})
	}
}

func stress(t *testing.T, o Options, long time.Duration) {
	clients, rounds := 60, 2
	switch {
	case long > 0:
		clients = 300
	case testing.Short():
		clients, rounds = 12, 1
	case !ringtest.Long():
		rounds = 1
	}
	o.WriteLimit, o.BufferSize, o.Buffers = 10_000, 1000, 16
	b := &busyServer{t: t}
	s := startOn(t, "tcp", "127.0.0.1:0", b.handler(), o)
	var all sync.WaitGroup
	until := time.Now().Add(long)
	for range clients {
		all.Go(func() {
			for i := 0; i < rounds || time.Now().Before(until); i++ {
				stressClient(t, s, rand.New(rand.NewPCG(rand.Uint64(), 1)))
			}
		})
	}
	all.Wait()
	await(t, "all connections have ended", func() bool { return s.Stats().Open == 0 })
	if opened, closed := b.opened.Load(), b.closed.Load(); opened != closed {
		t.Errorf("%d connections opened, %d closed", opened, closed)
	}
	b.workers.Wait()
}

// busyServer sends data back in several ways; the first byte of a stream chooses.
type busyServer struct {
	t              *testing.T
	opened, closed atomic.Int64
	workers        sync.WaitGroup
}

// Ways to serve a stream.
const (
	wayPlain  = iota // echo from OnData
	wayWorker        // echo from a goroutine, whose thread ends with it
	wayCloses        // echo, and close in the middle
	ways
)

// session is the server's side of a stream.
type session struct {
	way    byte
	known  bool
	bytes  int
	ended  bool // set by OnClose
	r      *rand.Rand
	pieces chan []byte
	room   chan struct{}
}

func (b *busyServer) handler() Handler {
	return Handler{
		OnOpen: func(c *Conn) {
			b.opened.Add(1)
			c.SetValue(&session{r: rand.New(rand.NewPCG(rand.Uint64(), 2)), room: make(chan struct{}, 1)})
		},
		OnData:     b.data,
		OnEOF:      b.eof,
		OnWritable: func(c *Conn) { signal(c.Value().(*session).room) },
		OnTimer:    func(c *Conn) { c.ResumeRead() },
		OnClose: func(c *Conn, _ error) {
			s := c.Value().(*session)
			if s.ended {
				b.t.Error("OnClose was called twice")
			}
			s.ended = true
			b.closed.Add(1)
			if s.pieces != nil {
				close(s.pieces)
				s.pieces = nil
			}
			signal(s.room)
		},
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (b *busyServer) data(c *Conn, p []byte) {
	s := c.Value().(*session)
	if s.ended {
		b.t.Error("OnData after OnClose")
	}
	if !s.known {
		if s.way, s.known = p[0]%ways, true; s.way == wayWorker {
			s.pieces = make(chan []byte, 1000)
			pieces := s.pieces
			b.workers.Go(func() { echoPieces(c, s.room, pieces) })
		}
	}
	s.bytes += len(p)
	switch s.r.IntN(60) {
	case 0:
		time.Sleep(time.Duration(s.r.IntN(int(time.Millisecond))))
	case 1, 2:
		c.PauseRead()
		c.SetTimer(time.Duration(s.r.IntN(int(2*time.Millisecond))) + 1)
	case 3:
		time.AfterFunc(time.Duration(s.r.IntN(int(time.Millisecond))), func() { c.PauseRead(); c.ResumeRead() })
	case 4:
		c.Post(func() { _ = c.Pending() })
	}
	if s.way == wayWorker {
		s.pieces <- bytes.Clone(p)
		return
	}
	// The connection is closed when the peer broke it; the peer notices the missing bytes.
	if _, err := c.Write(p); err != nil && !errors.Is(err, net.ErrClosed) {
		b.t.Errorf("write: %v", err)
	}
	if s.way == wayCloses && s.bytes > 3000 {
		_ = c.Close()
	}
}

// eof ends the stream when all replies are sent.
func (b *busyServer) eof(c *Conn) {
	if s := c.Value().(*session); s.pieces != nil {
		close(s.pieces)
		s.pieces = nil
		return
	}
	_ = c.Close()
}

// echoPieces writes the data of OnData from a thread that ends with the goroutine.
func echoPieces(c *Conn, room chan struct{}, pieces chan []byte) {
	runtime.LockOSThread()
	for p := range pieces {
		for {
			_, err := c.Write(p)
			if err == nil {
				break
			}
			if err != ErrFull {
				return // A remaining piece has no reader: the connection was broken.
			}
			<-room
		}
	}
	_ = c.Close()
}

// stressClient sends a stream and reads its echo.
func stressClient(t *testing.T, s *Server, r *rand.Rand) {
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Error(err)
		return
	}
	c := nc.(*net.TCPConn)
	defer c.Close()
	sent := random(1+r.IntN(60_000), r.Uint64())
	way, breaks := sent[0]%ways, r.IntN(8) == 0
	wr := rand.New(rand.NewPCG(r.Uint64(), 3))
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() { sendSlowly(t, c, sent, wr, way == wayCloses || breaks) })
	want := len(sent)
	if breaks {
		want = r.IntN(want)
	}
	got, err := readSlowly(c, want, breaks, r)
	switch {
	case !bytes.Equal(got, sent[:min(len(got), len(sent))]):
		t.Errorf("way %d: %d bytes came back changed", way, len(got))
	case breaks:
		_ = c.SetLinger(r.IntN(2) - 1)
		_ = c.Close()
	case way == wayCloses && len(sent) > 3000:
		// Data that the server had not read causes a reset, which discards data that it
		// sent.
	case err != io.EOF || len(got) != want:
		t.Errorf("way %d: %d of %d bytes came back: %v", way, len(got), want, err)
	}
}

// sendSlowly writes p in pieces, with pauses and deadlines that pass, and closes its
// direction.
func sendSlowly(t *testing.T, c *net.TCPConn, p []byte, r *rand.Rand, mayFail bool) {
	for end := time.Now().Add(testPatience); len(p) > 0; {
		_ = c.SetWriteDeadline(time.Now().Add(time.Duration(r.IntN(int(3 * time.Millisecond)))))
		n, err := c.Write(p[:min(len(p), 1+r.IntN(9000))])
		p = p[n:]
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end)) {
			if !mayFail {
				t.Errorf("%d bytes are left to write: %v", len(p), err)
			}
			return
		}
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(int(time.Millisecond))))
		}
	}
	_ = c.CloseWrite()
}

// readSlowly reads to the end, or n bytes if it breaks off, with pauses and deadlines that
// pass.
func readSlowly(c *net.TCPConn, n int, breaks bool, r *rand.Rand) (got []byte, err error) {
	p := make([]byte, 5000)
	for end := time.Now().Add(testPatience); !breaks || len(got) < n; {
		_ = c.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(int(3 * time.Millisecond)))))
		k, err := c.Read(p[:1+r.IntN(len(p)-1)])
		got = append(got, p[:k]...)
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end)) {
			return got, err
		}
		if r.IntN(8) == 0 {
			time.Sleep(time.Duration(r.IntN(int(time.Millisecond))))
		}
	}
	return got, nil
}

// TestThreadsThatExit uses connections and the server from goroutines that end while they
// are locked to their threads, so that the threads end too.
func TestThreadsThatExit(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		const conns, size = 8, 8
		threads := ringtest.Rounds(300, 60)
		h := echoes()
		opened := make(chan *Conn, conns)
		h.OnOpen = func(c *Conn) { opened <- c }
		h.OnTimer = func(*Conn) {}
		s := start(t, h, o)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for i := range conns {
			wg.Go(func() {
				c := dial(t, s)
				for n := uint64(0); ; n++ {
					select {
					case <-stop:
						return
					default:
						exchange(t, c, random(2000, n))
					}
				}
			})
			receive(t, "OnOpen", opened)
			_ = i
		}
		quiet := dial(t, s)
		c := receive(t, "OnOpen", opened)
		var want []byte
		for i := range threads {
			p := binary.BigEndian.AppendUint64(nil, uint64(i))
			want = append(want, p...)
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread()
				if n, err := c.Write(p); n != size || err != nil {
					t.Errorf("write: %d, %v", n, err)
				}
				c.SetTimer(time.Millisecond)
				c.Post(func() {})
				_ = s.Stats()
			}()
			receive(t, "end of a thread", done)
		}
		got := make([]byte, len(want))
		if n, err := io.ReadFull(quiet, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d of %d bytes, as written %v: %v", n, len(want), bytes.Equal(got, want), err)
		}
		close(stop)
		wg.Wait()
	})
}
