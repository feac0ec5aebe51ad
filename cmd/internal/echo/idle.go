// SPDX-License-Identifier: MIT

package echo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/procstat"
)

// IdleJob is the number of connections to hold open and the time to observe the server's process.
type IdleJob struct {
	Connections int
	Window      time.Duration
	// Settle is the idle time before the window.
	Settle time.Duration
}

// IdleSample is the cost of idle connections to a server.
type IdleSample struct {
	// CPU is the processor time in the window and Elapsed the window's length. Sleeps is the number
	// of times that a thread of the process went to sleep in it, which equals the number of
	// wake-ups.
	CPU, Elapsed time.Duration
	Sleeps       int64
	// Live is the growth of heap and stacks, and Resident that of resident memory, in bytes per
	// connection.
	Live, Resident float64
	// Go reports whether the server is written in Go, so that Live is known.
	Go bool
	// Backend and Reason are reported by the server.
	Backend, Reason string
}

// idleBase is the number of open connections at the first reading of memory. Memory that the server
// allocates once is then already there.
const idleBase = 16

// Idle opens connections to a server and exchanges one message on each. Then it observes the
// server's process while all connections are idle. The connections belong to this process, which is
// idle too.
func (r Runner) Idle(ctx context.Context, setup Setup, job IdleJob) (s IdleSample, err error) {
	hello, err := r.serve(ctx, setup, func(server *child, hello Hello) error {
		var held holder
		defer func() { held.close() }()
		before, err := held.grow(ctx, server, hello, idleBase)
		if err != nil {
			return err
		}
		after, err := held.grow(ctx, server, hello, job.Connections)
		if err != nil {
			return err
		}
		s.Live = float64(int64(after.live)-int64(before.live)) / float64(job.Connections)
		s.Resident = float64(after.resident-before.resident) / float64(job.Connections)
		s.Go = after.live > 0
		return s.watch(ctx, hello.Pid, job)
	})
	s.Backend, s.Reason = hello.Backend, hello.Reason
	return s, err
}

// watch reads the counters of the process at both ends of the window.
func (s *IdleSample) watch(ctx context.Context, pid int, job IdleJob) error {
	if err := pause(ctx, job.Settle); err != nil {
		return err
	}
	cpu, sleeps, err := costs(pid)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := pause(ctx, job.Window); err != nil {
		return err
	}
	s.Elapsed = time.Since(begin)
	cpuAfter, sleepsAfter, err := costs(pid)
	s.CPU, s.Sleeps = cpuAfter-cpu, sleepsAfter-sleeps
	return err
}

func costs(pid int) (cpu time.Duration, sleeps int64, err error) {
	if sleeps, err = procstat.Sleeps(pid); err != nil {
		return 0, 0, err
	}
	cpu, err = procstat.CPU(pid)
	return cpu, sleeps, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// holder keeps connections open.
type holder struct{ conns []net.Conn }

// memory is the memory of a server's process.
type memory struct {
	live     uint64
	resident int64
}

// grow opens n more connections and returns the memory that the server then holds, without garbage.
func (h *holder) grow(ctx context.Context, server *child, hello Hello, n int) (m memory, err error) {
	for range n {
		if err := h.open(ctx, hello.Addr); err != nil {
			return m, fmt.Errorf("connection %d: %w", len(h.conns), err)
		}
	}
	c, _, err := server.count(askSettle)
	if err != nil {
		return m, err
	}
	m.live = c.Live
	m.resident, err = procstat.Resident(hello.Pid)
	return m, err
}

// open opens a connection and uses it once.
func (h *holder) open(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	h.conns = append(h.conns, c)
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	sent, got := []byte("ping"), make([]byte, 4)
	if _, err := c.Write(sent); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != string(sent) {
		return errors.New("the message came back changed")
	}
	return c.SetDeadline(time.Time{})
}

func (h *holder) close() {
	for _, c := range h.conns {
		_ = c.Close()
	}
}
