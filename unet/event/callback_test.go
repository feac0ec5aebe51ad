// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// faulty is a handler whose functions fail on request: the first byte that the peer sends
// names the function.
func faulty(fail func(), closed chan<- error) Handler {
	which := func(c *Conn) byte { b, _ := c.Value().(byte); return b }
	return Handler{
		OnData: func(c *Conn, p []byte) {
			if c.Value() == nil {
				c.SetValue(p[0])
				switch p[0] {
				case 't':
					c.SetTimer(time.Microsecond)
				case 'p':
					c.Post(fail)
				case 'w':
					for {
						if _, err := c.Write(make([]byte, 1000)); err == ErrFull {
							return
						}
					}
				case 'd':
					fail()
				}
			}
			if which(c) == 'x' {
				_, _ = c.Write(p)
			}
		},
		OnEOF: func(c *Conn) {
			if which(c) == 'e' {
				fail()
			}
			_ = c.Close()
		},
		OnTimer:    func(*Conn) { fail() },
		OnWritable: func(*Conn) { fail() },
		OnClose: func(c *Conn, err error) {
			if which(c) != 'x' {
				closed <- err
			}
			if which(c) == 'c' {
				fail()
			}
		},
	}
}

// callbacksThatFail lets each function of a handler fail, with every backend. Only the
// connection of the call may end, by a reset.
func callbacksThatFail(t *testing.T, o Options, fail func(), want any, panics *atomic.Int64) {
	closed := make(chan error, 1)
	h := faulty(fail, closed)
	if want != nil {
		h.OnPanic = func(c *Conn, value any) {
			panics.Add(1)
			if value != want {
				t.Errorf("OnPanic got %v", value)
			}
		}
	}
	o.WriteLimit = 10_000
	s := start(t, h, o)
	good := dial(t, s)
	exchange(t, good, append([]byte("x"), random(2000, 1)...))
	rounds := 3
	for range rounds {
		for _, which := range []string{"d", "t", "p", "w", "e", "c"} {
			c := dial(t, s)
			if _, err := io.WriteString(c, which); err != nil {
				t.Fatal(err)
			}
			if which == "e" || which == "c" {
				_ = c.(interface{ CloseWrite() error }).CloseWrite()
			}
			_, readErr := io.Copy(io.Discard, c)
			_ = c.Close()
			err := receive(t, "OnClose after "+which, closed)
			var failed *HandlerError
			switch {
			case which == "c":
				if err != nil {
					t.Errorf("%s: OnClose got %v", which, err)
				}
			case !errors.As(err, &failed) || failed.Value != want:
				t.Errorf("%s: OnClose got %v", which, err)
			case readErr == nil && which != "e":
				t.Errorf("%s: the peer saw an orderly end", which)
			}
			exchange(t, good, random(3000, 2))
		}
	}
	await(t, "the other connections were closed", func() bool { return s.Stats().Open == 1 })
	if want != nil && panics.Load() != int64(6*rounds) {
		t.Errorf("OnPanic was called %d times", panics.Load())
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	s.noneLeft(t)
}

// TestPanicsOfCallbacks checks that a panic ends one connection where OnPanic is set.
// Promise: unet/event/callback-panics-onpanic
func TestPanicsOfCallbacks(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		value := errors.New("oops")
		callbacksThatFail(t, o, func() { panic(value) }, value, new(atomic.Int64))
	})
}

// TestGoexitInCallbacks checks that runtime.Goexit ends connections and no loop.
// Promise: unet/event/callback-panics-onpanic
func TestGoexitInCallbacks(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) { callbacksThatFail(t, o, runtime.Goexit, nil, nil) })
}

// TestGoexitAtEveryOpen calls runtime.Goexit in OnOpen and OnClose, also while the server
// ends.
// Promise: unet/event/callback-panics-onpanic
func TestGoexitAtEveryOpen(t *testing.T) {
	overModes(t, func(t *testing.T, o Options) {
		s := start(t, Handler{
			OnOpen:  func(*Conn) { runtime.Goexit() },
			OnClose: func(*Conn, error) { runtime.Goexit() },
		}, o)
		for range 30 {
			if c, err := net.Dial("tcp", s.Addr().String()); err == nil { // otherwise it was reset at once
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestPanicEndsTheProcess runs children whose handlers panic, without OnPanic: the report
// has the value and names the function that panicked.
// Promise: unet/event/callback-panics-onpanic
func TestPanicEndsTheProcess(t *testing.T) {
	if os.Getenv(envChild) != "" {
		overModes(t, func(t *testing.T, o Options) {
			s := start(t, Handler{OnData: func(*Conn, []byte) { panicHere() }}, o)
			c := dial(t, s)
			_, _ = c.Write([]byte("x"))
			_, _ = io.Copy(io.Discard, c)
			time.Sleep(testPatience) // the process ends before the result
		})
		return
	}
	overModes(t, func(t *testing.T, _ Options) {
		_, mode, _ := strings.Cut(t.Name(), "/")
		cmd := exec.Command(os.Args[0], "-test.run=^TestPanicEndsTheProcess$/^"+mode+"$")
		cmd.Env = append(os.Environ(), envChild+"=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "panic: oops") || !strings.Contains(string(out), "event.panicHere") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

//go:noinline
func panicHere() { panic("oops") }
