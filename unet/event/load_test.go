// SPDX-License-Identifier: MIT

package event

import (
	"net"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestManyConnections connects and closes, half of the time with a reset, and checks that
// nothing is left.
func TestManyConnections(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		total := 100_000 / 5 // for each mode
		switch {
		case testing.Short():
			total = 300
		case raceEnabled:
			total = ringtest.Rounds(1500, 600)
		}
		const workers = 4
		s := start(t, echoes(), o)
		exchange(t, dial(t, s), []byte("x"))
		fds := len(ringtest.Descriptors(t, ""))
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range total / workers {
					c, err := net.Dial("tcp", s.Addr().String())
					if err != nil {
						t.Error(err)
						return
					}
					// A reset leaves no port in TIME_WAIT.
					_ = c.(*net.TCPConn).SetLinger(0)
					if i%2 == 0 {
						exchange(t, c, []byte{byte(i), byte(w)})
					}
					_ = c.Close()
				}
			})
		}
		wg.Wait()
		// A connection that its client has reset may not have been accepted yet.
		await(t, "one connection and no further descriptor are left", func() bool {
			return s.Stats().Open == 1 && len(ringtest.Descriptors(t, "")) <= fds
		})
		s.noneLeft(t)
	})
}

func TestZeroAllocationsPerEcho(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector, which allocates")
	}
	overModes(t, func(t *testing.T, o Options) {
		if o.Mode == ModeNet {
			return // allocations of package net
		}
		allocationsPerEcho(t, o)
	})
}

func allocationsPerEcho(t *testing.T, o Options) {
	s := start(t, echoes(), o)
	c := dial(t, s)
	p := random(128, 1)
	echo := func() {
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(p); {
			k, err := c.Read(p)
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
	}
	for range 100 {
		echo()
	}
	if n := ringtest.Allocations(ringtest.Rounds(2000, 300), echo); n != 0 {
		t.Errorf("%v allocations per echo", n)
	}
}
