// SPDX-License-Identifier: MIT

package unet_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// TestBubble uses sockets in a bubble of testing/synctest, from Listen to the close of the
// last one: the drivers start and stop in it.
// Promise: unet/bubble-testing-synctest
func TestBubble(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		synctest.Test(t, func(t *testing.T) {
			a, b := bubblePair(t, s)
			go func() { // an echo
				_, _ = io.Copy(struct{ io.Writer }{b}, struct{ io.Reader }{b})
				_ = b.Close()
			}()
			p := make([]byte, 4)
			for range 3 {
				if _, err := a.Write([]byte("ping")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(a, p); err != nil || string(p) != "ping" {
					t.Fatalf("%q, %v", p, err)
				}
			}
			_ = a.Close()
		})
	})
}

// bubblePair is pair without the parts that wait for the end of the test.
func bubblePair(t *testing.T, s *unet.System) (dialed, accepted net.Conn) {
	t.Helper()
	l, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialed, err = s.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return dialed, accepted
}

// TestBubbleReadIsNotDurable waits in a Read within a bubble for data from outside: until
// the data arrives, Wait does not return and the bubble's clock does not move.
// Promise: unet/bubble-testing-synctest
func TestBubbleReadIsNotDurable(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		outer, inner := pair(t, s, "tcp")
		waits := make(chan struct{})
		sent := make(chan error, 1)
		go func() { // outside of the bubble
			<-waits
			time.Sleep(20 * time.Millisecond) // so that Read waits, most of the time
			_, err := outer.Write([]byte("x"))
			sent <- err
		}()
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			var slept, read atomic.Bool
			go func() {
				time.Sleep(time.Hour)
				slept.Store(true)
			}()
			go func() {
				waits <- struct{}{}
				_, err := inner.Read(make([]byte, 1))
				if err != nil {
					t.Error(err)
				}
				if slept.Load() || !time.Now().Equal(begin) {
					t.Error("the clock moved while a Read waited")
				}
				read.Store(true)
			}()
			synctest.Wait()
			if !read.Load() {
				t.Error("a Read that waits counts as durably blocked")
			}
			time.Sleep(2 * time.Hour) // until the goroutine above has ended
		})
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// TestBubbleDeadline sets deadlines in a bubble, which last as long in real time as their
// remaining time in the bubble, and closes a connection whose Read waits outside.
// Promise: unet/bubble-testing-synctest
func TestBubbleDeadline(t *testing.T) {
	eachMode(t, func(t *testing.T, s *unet.System) {
		a, b := pair(t, s, "tcp")
		outer := start(func() error { _, err := b.Read(make([]byte, 1)); return err })
		began := time.Now()
		synctest.Test(t, func(t *testing.T) {
			_ = a.SetReadDeadline(time.Now().Add(time.Hour))
			_ = a.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
			_, err := a.Read(make([]byte, 1))
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a Read past its deadline: %v", err)
			}
			_ = a.SetReadDeadline(time.Now().Add(-time.Second))
			if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a Read with a deadline in the past: %v", err)
			}
			_ = b.Close()
		})
		if took := time.Since(began); took < 30*time.Millisecond {
			t.Errorf("a deadline of 30 ms passed after %v", took)
		}
		if err := soon(t, "the Read outside", outer); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the Read outside: %v", err)
		}
	})
}
