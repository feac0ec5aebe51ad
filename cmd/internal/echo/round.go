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

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/procstat"
)

// Runner runs rounds: a server and a load generator, each in a process of its own.
type Runner struct {
	// Server returns the program that serves as a setup describes, as Serve does, Load the one that answers
	// a job, as ServeLoad does.
	Server func(Setup) []string
	Load   []string
}

// Sample is the result of a round.
type Sample struct {
	loadgen.Result
	// Count is the difference of the server's counters over the window; Enters is -1 where they
	// are not counted.
	Count
	// Go reports whether the server is written in Go, so that Objects and Bytes are known.
	Go bool
	// Backend and Reason are those that the server reports.
	Backend, Reason string
}

// ServeLoad runs a load generator in this process: it reads a job and writes true at the beginning
// of the window, false at its end, and the result.
func ServeLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	return measure.ServeWorker(ctx, in, out, func(ctx context.Context, job loadgen.Job) (loadgen.Result, error) {
		return loadgen.Run(ctx, job, func(begin bool) { _, _ = fmt.Fprintln(out, begin) }) // the parent notices
	})
}

// Round measures an engine once. Address and process of the server are filled into the job. When
// ctx ends both processes are killed, and the error matches the context's.
func (r Runner) Round(ctx context.Context, setup Setup, job loadgen.Job) (s Sample, err error) {
	hello, err := r.serve(ctx, setup, func(server *child, hello Hello) error {
		job.Network, job.Addr, job.Pid, job.Others = cmp.Or(setup.Network, "tcp"), hello.Addr, hello.Pid, hello.Others
		s, err = r.load(ctx, setup.Pin, job, server)
		return err
	})
	s.Backend, s.Reason = hello.Backend, hello.Reason
	return s, err
}

// RoundWith is Round with another program in the place of the load generator: use runs it on the
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

// serve starts a server and ends it when use has returned.
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

// explain prefers the context's error to errors that the end of the context caused.
func (Runner) explain(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// load runs the load generator and asks the server for its counters at both ends of the window.
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
	if s.Enters >= 0 {
		s.Enters -= counts[0].Enters
	}
	return s, load.out.Decode(&s.Result)
}

// child is a process with which we talk in JSON.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	said *bytes.Buffer
}

// startChild starts a program, with its GOMAXPROCS where procs is not 0. With pin a server has one
// processor for itself, and another program the others.
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

// count asks a server for its counters.
func (c *child) count(ask string) (n Count, isGo bool, err error) {
	if _, err := io.WriteString(c.in, ask+"\n"); err != nil {
		return Count{}, false, err
	}
	err = c.out.Decode(&n)
	return n, n.Objects > 0, err
}

// end ends the process and returns its error message; a process that is not to be trusted any
// more is killed.
func (c *child) end(kill bool) error {
	_ = c.in.Close() // It ends with its input.
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
