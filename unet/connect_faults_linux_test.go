// SPDX-License-Identifier: MIT

package unet

import (
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestConnectsLeaveNothing connects and closes, orderly and by resets, and counts
// descriptors, slots in the tables and memory afterwards. RINGSIDE_CONNECTS sets the number
// of connections, for example 100000.
func TestConnectsLeaveNothing(t *testing.T) {
	total := ringtest.Rounds(4000, 1500)
	if testing.Short() {
		total = 200
	}
	if n, err := strconv.Atoi(os.Getenv("RINGSIDE_CONNECTS")); err == nil {
		total = n
	}
	for _, mode := range []Mode{ModePlain, ModeRing} {
		t.Run(mode.String(), func(t *testing.T) {
			if mode == ModeRing {
				ringtest.NeedRing(t)
			}
			s, err := NewSystem(Options{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			l, err := s.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var servers sync.WaitGroup
			servers.Go(func() { echoAll(l.(*TCPListener), &servers) })
			connects(t, s, l.Addr().String(), 200) // so that all pools are filled
			before := held(t, s, 1)
			connects(t, s, l.Addr().String(), total)
			after := held(t, s, 1)
			t.Logf("%d connections; before %+v, after %+v", total, before, after)
			// Some connections are being closed, and some pipes are kept for the next
			// splice.
			const few = 4 * connectors
			if after.fds > before.fds+few || after.places > before.places+few || after.bytes > before.bytes+2<<20 {
				t.Errorf("after %d connections the process holds %+v, before %+v", total, after, before)
			}
			_ = l.Close()
			servers.Wait()
		})
	}
}

const connectors = 8

func echoAll(l *TCPListener, all *sync.WaitGroup) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		})
	}
}

// connects makes connections, a few at a time, that end in different ways.
func connects(t *testing.T, s *System, address string, total int) {
	t.Helper()
	var all sync.WaitGroup
	for range connectors {
		all.Go(func() {
			p := make([]byte, 64)
			for i := range total / connectors {
				c, err := s.Dial("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					_, err = c.Write(p)
				}
				if i%4 == 0 && err == nil {
					_, err = io.ReadFull(c, p)
				}
				if i%8 == 0 {
					_ = c.SetDeadline(time.Now().Add(time.Hour))
				}
				if err != nil {
					t.Error(err)
				}
				_ = c.(*TCPConn).SetLinger(0) // otherwise the ports run out
				_ = c.Close()
			}
		})
	}
	all.Wait()
}

// holding counts what a process holds.
type holding struct {
	fds    int
	places int // slots of the tables, free or not
	bytes  uint64
}

// held waits until few sockets are left, and counts.
func held(t *testing.T, s *System, sockets int) (h holding) {
	t.Helper()
	for end := time.Now().Add(ringtest.Patience); ; runtime.Gosched() {
		h.places = 0
		taken := 0
		for _, l := range s.loops {
			l.table.mu.Lock()
			h.places += len(l.table.slots)
			taken += len(l.table.slots) - len(l.table.free)
			l.table.mu.Unlock()
		}
		if taken == sockets {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d sockets are in the tables, want %d", taken, sockets)
		}
	}
	h.fds = len(ringtest.Descriptors(t, ""))
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // memory that the pools held
	runtime.ReadMemStats(&m)
	h.bytes = m.HeapAlloc
	return h
}
