// SPDX-License-Identifier: MIT

package echo

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/procstat"
)

// Runner runs rounds: a server and a load generator, each in a process of its own.
type Runner struct {
	// Server returns the command of a server process, which calls Serve. Load returns the command
	// of a load generator, which calls ServeLoad.
	Server func(Setup) []string
	Load   []string
}

// Sample is the result of a round.
type Sample struct {
	loadgen.Result
	// Count is the difference of the server's counters over the window. Enters is -1 if they are
	// not counted.
	Count
	// Go reports whether the server is written in Go, so that Objects and Bytes are known.
	Go bool
	// Backend and Reason are reported by the server.
	Backend, Reason string
}

// ServeLoad runs a load generator in this process. It reads a job. It writes true at the beginning
// of the window, false at its end, and then the result.
func ServeLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	return measure.ServeWorker(ctx, in, out, func(ctx context.Context, job loadgen.Job) (loadgen.Result, error) {
		return loadgen.Run(ctx, job, func(begin bool) { _, _ = fmt.Fprintln(out, begin) }) // the parent detects a failed write
	})
}

// Round measures an engine once. It fills the address and process of the server into the job. When
// ctx ends it kills both processes, and the error matches that of the context.
func (r Runner) Round(ctx context.Context, setup Setup, job loadgen.Job) (s Sample, err error) {
	hello, err := r.serve(ctx, setup, func(server *child, hello Hello) error {
		job.Network, job.Addr, job.Pid = cmp.Or(setup.Network, "tcp"), hello.Addr, hello.Pid
		s, err = r.load(ctx, setup.Pin, job, server)
		return err
	})
	s.Backend, s.Reason = hello.Backend, hello.Reason
	return s, err
}

// Open starts a server and a load generator that take turns with others. CPU time of the samples is
// that of the server.
func (r Runner) Open(ctx context.Context, setup Setup, job loadgen.Job) (_ measure.Player, err error) {
	p := &player{}
	if p.server, err = startChild(ctx, r.Server(setup), setup.Procs, setup.Pin, true); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = r.explain(ctx, errors.Join(err, p.server.end(true)))
		}
	}()
	var hello Hello
	if err := p.server.out.Decode(&hello); err != nil {
		return nil, fmt.Errorf("engine %s: %w", setup.Engine, err)
	}
	job.Network, job.Addr, job.Pid = cmp.Or(setup.Network, "tcp"), hello.Addr, hello.Pid
	job.Turning = true
	load := measure.Process{Path: r.Load[0], Args: r.Load[1:]}
	if setup.Pin {
		load.Around = func(start func() error) error { return pinned(false, start) }
	}
	p.Session, err = load.Open(ctx, job)
	return p, err
}

// player is a server with its load generator.
type player struct {
	*measure.Session
	server *child
}

// Close ends both processes.
func (p *player) Close() error {
	err := p.Session.Close()
	return errors.Join(err, p.server.end(err != nil))
}

// RoundWith is Round with another program instead of the load generator: use runs it with the
// server's address. It does not count allocations and enters.
func (r Runner) RoundWith(ctx context.Context, setup Setup, use func(addr string) (loadgen.Result, error)) (s Sample, err error) {
	s.Enters = -1
	hello, err := r.serve(ctx, setup, func(_ *child, hello Hello) error {
		before, err := procstat.CPU(hello.Pid)
		if err != nil {
			return err
		}
		if s.Result, err = use(hello.Addr); err != nil {
			return err
		}
		after, err := procstat.CPU(hello.Pid)
		s.CPU = after - before
		return err
	})
	s.Backend, s.Reason = hello.Backend, hello.Reason
	return s, err
}

// serve starts a server, calls use, and stops the server.
func (r Runner) serve(ctx context.Context, setup Setup, use func(*child, Hello) error) (hello Hello, err error) {
	server, err := startChild(ctx, r.Server(setup), setup.Procs, setup.Pin, true)
	if err != nil {
		return hello, err
	}
	defer func() { err = r.explain(ctx, errors.Join(err, server.end(err != nil))) }()
	if err := server.out.Decode(&hello); err != nil {
		return hello, fmt.Errorf("engine %s: %w", setup.Engine, err)
	}
	return hello, use(server, hello)
}

// explain returns the context's error instead of errors that the end of the context caused. A dialer's
// deadline, which is the context's, may end before the context does.
func (Runner) explain(ctx context.Context, err error) error {
	if end, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(end) {
		<-ctx.Done()
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// load runs the load generator, and reads the server's counters at both ends of the window.
func (r Runner) load(ctx context.Context, pin bool, job loadgen.Job, server *child) (s Sample, err error) {
	load, err := startChild(ctx, r.Load, 0, pin, false)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, load.end(err != nil)) }()
	if err := json.NewEncoder(load.in).Encode(job); err != nil {
		return Sample{}, err
	}
	var counts [2]Count
	for i := range counts {
		var mark bool
		if err := load.out.Decode(&mark); err != nil {
			return Sample{}, err
		}
		if counts[i], s.Go, err = server.count(askCount); err != nil {
			return Sample{}, err
		}
	}
	s.Count = counts[1]
	s.Objects -= counts[0].Objects
	s.Bytes -= counts[0].Bytes
	s.Units -= counts[0].Units
	s.At -= counts[0].At
	if s.Enters >= 0 {
		s.Enters -= counts[0].Enters
	}
	return s, load.out.Decode(&s.Result)
}

// child is a process that exchanges JSON with this one.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	said *bytes.Buffer
}

// startChild starts a program, with GOMAXPROCS set to procs unless that is 0. With pin a server has
// one processor for itself, and other programs have the remaining ones.
func startChild(ctx context.Context, args []string, procs int, pin, isServer bool) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, args[0], args[1:]...), said: &bytes.Buffer{}}
	if procs > 0 {
		c.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", procs))
	}
	c.cmd.Stderr = c.said
	measure.Isolate(c.cmd)
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(bufio.NewReader(out))
	start := c.cmd.Start
	if pin {
		start = func() error { return pinned(isServer, c.cmd.Start) }
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	return c, nil
}

// count reads a server's counters.
func (c *child) count(ask string) (n Count, isGo bool, err error) {
	if _, err := io.WriteString(c.in, ask+"\n"); err != nil {
		return Count{}, false, err
	}
	err = c.out.Decode(&n)
	return n, n.Objects > 0, err
}

// end ends the process and returns its error message. With kill it does not wait for the process to
// end by itself.
func (c *child) end(kill bool) error {
	_ = c.in.Close() // The process ends at the end of its input.
	if kill {
		_ = c.cmd.Cancel()
	}
	err := c.cmd.Wait()
	if said := strings.TrimSpace(c.said.String()); err != nil && said != "" {
		return errors.New(said)
	}
	if kill {
		return nil
	}
	return err
}
