// SPDX-License-Identifier: MIT

package unet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
)

// TestStress exchanges numbered bytes on many connections while deadlines pass and move,
// handlers stall and sleep, and either side closes one or both directions. No byte may be
// lost or changed before a close, and no call may wait for ever. RINGSIDE_STRESS sets the
// duration, for example 5m.
// Promise: unet/byte-order-right
func TestStress(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("RINGSIDE_STRESS"))
	if err != nil {
		long = 0
	}
	for _, procs := range []int{1, 2, 8} {
		for _, network := range []string{"tcp", "unix"} {
			for _, mode := range modes()[1:] {
				t.Run(fmt.Sprintf("procs=%d/%s/%v", procs, network, mode), func(t *testing.T) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					defer debug.SetGCPercent(debug.SetGCPercent(1))
					stress(t, newSystem(t, mode), network, long)
				})
			}
		}
	}
}

func stress(t *testing.T, s *unet.System, network string, long time.Duration) {
	conns, rounds := 60, ringtest.Rounds(3, 1)
	switch {
	case long > 0:
		conns = 250
	case testing.Short():
		conns, rounds = 16, 1
	}
	l := listen(t, s, network)
	until := time.Now().Add(long)
	for round := 0; round < rounds || time.Now().Before(until); round++ {
		var all sync.WaitGroup
		for range conns {
			seed := rand.Uint64()
			all.Go(func() { stressServer(t, l, seed) })
			all.Go(func() { stressClient(t, s, l, seed) })
		}
		done := make(chan struct{})
		go func() { all.Wait(); close(done) }()
		soon(t, "the connections of a round", done)
	}
}

// stressServer echoes on one connection to its end.
func stressServer(t *testing.T, l net.Listener, seed uint64) {
	c, err := l.Accept()
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	r := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, 1+r.IntN(3000))
	for {
		if r.IntN(4) == 0 {
			_ = c.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(2000)) * time.Microsecond))
		}
		n, err := c.Read(p)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = c.SetReadDeadline(time.Time{})
			continue
		case err != nil:
			return // the client checks the data
		}
		stall(r)
		if _, err := c.Write(p[:n]); err != nil {
			return
		}
	}
}

// stall sometimes keeps a handler busy or asleep.
func stall(r *rand.Rand) {
	switch r.IntN(12) {
	case 0:
		time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
	case 1:
		for start := time.Now(); time.Since(start) < time.Duration(r.IntN(200))*time.Microsecond; {
		}
	case 2:
		runtime.Gosched()
	}
}

// stressClient sends a stream that it can check, and ends it in one of several ways.
func stressClient(t *testing.T, s *unet.System, l net.Listener, seed uint64) {
	c, err := s.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	r := rand.New(rand.NewPCG(seed, 2))
	data := make([]byte, 1+r.IntN(60_000))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	abrupt := r.IntN(4) == 0
	var both sync.WaitGroup
	both.Go(func() { stressSend(t, c, data, rand.New(rand.NewPCG(seed, 3)), abrupt) })
	both.Go(func() { stressCheck(t, c, data, rand.New(rand.NewPCG(seed, 4)), abrupt) })
	if abrupt {
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
		_ = c.Close()
	}
	both.Wait()
}

func stressSend(t *testing.T, c net.Conn, data []byte, r *rand.Rand, abrupt bool) {
	for len(data) > 0 {
		if r.IntN(3) == 0 {
			_ = c.SetWriteDeadline(time.Now().Add(time.Duration(r.IntN(3000)) * time.Microsecond))
		}
		n, err := c.Write(data[:min(len(data), 1+r.IntN(4000))])
		data = data[n:]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = c.SetWriteDeadline(time.Time{})
		} else if err != nil {
			if !abrupt {
				t.Errorf("write: %v", err)
			}
			return
		}
		stall(r)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil && !abrupt {
		t.Errorf("half-close: %v", err)
	}
}

func stressCheck(t *testing.T, c net.Conn, data []byte, r *rand.Rand, abrupt bool) {
	p := make([]byte, 4096)
	for {
		switch r.IntN(4) {
		case 0:
			_ = c.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(2000)) * time.Microsecond))
		case 1:
			_ = c.SetReadDeadline(time.Now().Add(time.Hour))
		}
		n, err := c.Read(p[:r.IntN(len(p))])
		if n > len(data) || !bytes.Equal(p[:n], data[:n]) {
			t.Errorf("read %d bytes, or other bytes than were sent", n)
			return
		}
		data = data[n:]
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = c.SetReadDeadline(time.Time{})
		case err == io.EOF:
			if len(data) > 0 && !abrupt {
				t.Errorf("the end came %d bytes early", len(data))
			}
			return
		case err != nil:
			if !abrupt {
				t.Errorf("read: %v", err)
			}
			return
		}
		stall(r)
	}
}

// TestWritesHappenBeforeReads shares a variable that only messages protect: the race
// detector must not report that, as it does not with package net.
// Promise: unet/race-detector-sees
func TestWritesHappenBeforeReads(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		a, b := pair(t, s, "tcp")
		shared := 0
		done := start(func() error {
			p := make([]byte, 8)
			for range 50 {
				if _, err := b.Read(p); err != nil {
					return err
				}
				shared++
				if _, err := b.Write(p[:1]); err != nil {
					return err
				}
			}
			return nil
		})
		p := make([]byte, 8)
		for range 50 {
			shared++
			if _, err := a.Write(p[:1]); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Read(p); err != nil {
				t.Fatal(err)
			}
		}
		if err := soon(t, "the other end", done); err != nil || shared != 100 {
			t.Errorf("%d, %v", shared, err)
		}
	})
}
