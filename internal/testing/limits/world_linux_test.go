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

// world is the kernel's world with an event server, to which every other
// connection goes.
type world struct {
	*stress.KernelWorld
	server *event.Server

	tolerated []syscall.Errno // what may be answered while the limit holds
	patience  time.Duration   // how long a connection may wait to be accepted
	ending    func(*world)    // called when the scenario is over

	refused atomic.Int64
	wrong   []string
}

// newWorld opens the world of a scenario.
func newWorld(s *stress.Scenario, dir string) (*world, error) {
	inner, err := stress.NewKernelWorld(s, dir)
	if err != nil {
		return nil, err
	}
	w := &world{KernelWorld: inner, patience: ringtest.Patience}
	echo := event.Handler{OnData: func(c *event.Conn, p []byte) { _, _ = c.Write(p) }}
	w.server, err = event.Listen("tcp", "127.0.0.1:0", echo, event.Options{})
	return w, err
}

// generate makes a scenario of so many actors whose world may be short.
func generate(seed uint64, actors int) *stress.Scenario {
	return stress.Generate("kernel", seed, stress.Size{Actors: actors, Steps: 10}, func(rng *rand.Rand) stress.Settings {
		s := stress.KernelSettings(rng)
		s["short"] = 1
		return s
	})
}

// played plays seeds of a world and returns how many operations there were, and
// how many of them were refused.
func played(t *testing.T, dir string, seeds, actors int, prepare func(*world)) (operations, refused int64) {
	t.Helper()
	for seed := range uint64(seeds) {
		s, home := generate(seed+1, actors), filepath.Join(dir, strconv.Itoa(int(seed)))
		if err := os.Mkdir(home, 0o700); err != nil {
			t.Fatal(err)
		}
		w, err := newWorld(s, home)
		// The kernel gives back in its own time what a closed ring had locked.
		for end := time.Now().Add(ringtest.Patience); errors.Is(err, syscall.ENOMEM) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
			w, err = newWorld(s, home)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed+1, err)
		}
		prepare(w)
		r := stress.Play(w, s)
		if r.Failed() {
			t.Fatalf("seed %d: %s\n%s", seed+1, strings.Join(r.Problems, "\n"), r.Hung)
		}
		operations, refused = operations+r.Operations, refused+w.refused.Load()
	}
	t.Logf("%d seeds, %d operations, %d refused", seeds, operations, refused)
	return operations, refused
}

// note counts what is refused.
func (w *world) note(err error) error {
	if err != nil && w.Tolerates(err) {
		w.refused.Add(1)
	}
	return err
}

func (w *world) problem(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// Tolerates allows what the limit may cause.
func (w *world) Tolerates(err error) bool {
	for _, errno := range w.tolerated {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// Patience is how long a scenario may last.
func (w *world) Patience() time.Duration { return ringtest.Patience }

// OpenFile opens a file.
func (w *world) OpenFile(number int) (stress.File, error) {
	f, err := w.KernelWorld.OpenFile(number)
	return f, w.note(err)
}

// Pipe makes a pipe.
func (w *world) Pipe(first uint64) (stress.Pipe, error) {
	p, err := w.KernelWorld.Pipe(first)
	return p, w.note(err)
}

// Watch has a pipe watched.
func (w *world) Watch(mode int) (stress.Watch, error) {
	k, err := w.KernelWorld.Watch(mode)
	return k, w.note(err)
}

// Dial connects to one of the servers, which has accepted when Dial returns: a
// client that holds descriptors and waits in a backlog until others free some could
// wait for ever.
func (w *world) Dial(first uint64) (stress.Conn, error) {
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

func (w *world) dial(first uint64) (stress.Conn, error) {
	if first>>24%2 == 0 {
		return w.KernelWorld.Dial(first)
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
func (w *world) Finish() []string {
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
	return append(w.wrong, w.KernelWorld.Finish()...)
}
