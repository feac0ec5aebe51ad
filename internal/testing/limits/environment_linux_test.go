// SPDX-License-Identifier: MIT

package limits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/internal/testing/stress"
	"github.com/ringside-io/ringside/unet/event"
)

// environment is the kernel environment with an event server; every other connection goes
// to that server.
type environment struct {
	*stress.KernelEnv
	server *event.Server

	tolerated []syscall.Errno    // errors that are permitted while the limit holds
	patience  time.Duration      // how long a connection may wait to be accepted
	ending    func(*environment) // called after the scenario

	refused atomic.Int64
	wrong   []string
}

// newEnvironment opens the environment of a scenario.
func newEnvironment(s *stress.Scenario, dir string) (*environment, error) {
	inner, err := stress.NewKernelEnv(s, dir)
	if err != nil {
		return nil, err
	}
	w := &environment{KernelEnv: inner, patience: ringtest.Patience}
	echo := event.Handler{OnData: func(c *event.Conn, p []byte) { _, _ = c.Write(p) }}
	w.server, err = event.Listen("tcp", "127.0.0.1:0", echo, event.Options{})
	return w, err
}

// generate makes a scenario with the given number of workers for an environment under a
// limit.
func generate(seed uint64, workers int) *stress.Scenario {
	return stress.Generate("kernel", seed, stress.Size{Workers: workers, Steps: 10}, func(rng *rand.Rand) stress.Settings {
		s := stress.KernelSettings(rng)
		s["short"] = 1
		return s
	})
}

// run runs seeds of an environment and returns the number of operations, and how many of
// them were refused.
func run(t *testing.T, dir string, seeds, workers int, prepare func(*environment)) (operations, refused int64) {
	t.Helper()
	for seed := range uint64(seeds) {
		s, home := generate(seed+1, workers), filepath.Join(dir, strconv.Itoa(int(seed)))
		if err := os.Mkdir(home, 0o700); err != nil {
			t.Fatal(err)
		}
		w, err := newEnvironment(s, home)
		// The kernel releases the locked memory of a closed ring asynchronously.
		for end := time.Now().Add(ringtest.Patience); errors.Is(err, syscall.ENOMEM) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
			w, err = newEnvironment(s, home)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed+1, err)
		}
		prepare(w)
		r := stress.Run(w, s)
		if r.Failed() {
			t.Fatalf("seed %d: %s\n%s", seed+1, strings.Join(r.Problems, "\n"), r.Hung)
		}
		operations, refused = operations+r.Operations, refused+w.refused.Load()
	}
	t.Logf("%d seeds, %d operations, %d refused", seeds, operations, refused)
	return operations, refused
}

// note counts the errors of the limit.
func (w *environment) note(err error) error {
	if err != nil && w.Tolerates(err) {
		w.refused.Add(1)
	}
	return err
}

func (w *environment) problem(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// Tolerates accepts errors that the limit may cause.
func (w *environment) Tolerates(err error) bool {
	for _, errno := range w.tolerated {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// Patience is how long a scenario may last.
func (w *environment) Patience() time.Duration { return ringtest.Patience }

// OpenFile opens a file.
func (w *environment) OpenFile(number int) (stress.File, error) {
	f, err := w.KernelEnv.OpenFile(number)
	return f, w.note(err)
}

// Pipe creates a pipe.
func (w *environment) Pipe(first uint64) (stress.Pipe, error) {
	p, err := w.KernelEnv.Pipe(first)
	return p, w.note(err)
}

// Watch watches a pipe.
func (w *environment) Watch(mode int) (stress.Watch, error) {
	k, err := w.KernelEnv.Watch(mode)
	return k, w.note(err)
}

// Dial connects to one of the servers, which has accepted when Dial returns. Otherwise
// clients could hold all descriptors and wait in a backlog for ever.
func (w *environment) Dial(first uint64) (stress.Conn, error) {
	c, err := w.dial(first)
	if err != nil {
		return nil, w.note(err)
	}
	if err := greet(c, w.patience); err != nil {
		_ = c.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("not accepted: %w", syscall.EMFILE)
		}
		return nil, w.note(err)
	}
	return c, nil
}

func (w *environment) dial(first uint64) (stress.Conn, error) {
	if first>>24%2 == 0 {
		return w.KernelEnv.Dial(first)
	}
	c, err := net.Dial("tcp", w.server.Addr().String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// greet waits until a byte comes back.
func greet(c stress.Conn, patience time.Duration) error {
	p := []byte{'?'}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write(p); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, p); err != nil {
		return err
	}
	if p[0] != '?' {
		return fmt.Errorf("%q came back", p)
	}
	return c.SetDeadline(time.Time{})
}

// Finish ends the limit and closes everything.
func (w *environment) Finish() []string {
	if w.ending != nil {
		w.ending(w)
	}
	ctx, cancel := context.WithTimeout(context.Background(), ringtest.Patience)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		w.problem("the event server: %v", err)
	}
	if n := w.server.Stats().Open; n != 0 {
		w.problem("the event server has %d connections", n)
	}
	return append(w.wrong, w.KernelEnv.Finish()...)
}
