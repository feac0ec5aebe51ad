// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// result is the result of a load.
type result struct {
	Elapsed, P50, P99, Max time.Duration
	Requests               int   // answered in Elapsed
	Total, Stored          int64 // all that were answered, and those that stored an item
	Threads, Errors        int
	Backend                string
	CPU                    time.Duration // of the service, from its start to its end
	Ended                  time.Duration // how long the service took to end
	Err                    error
}

// errNothing is the error of a load during which no request was answered.
var errNothing = errors.New("no request was answered")

// rate is requests per second.
func (r *result) rate() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// print prints one result. It returns an error if requests failed.
func (r *result) print(out io.Writer, o options) error {
	fmt.Fprintf(out, "%s: %d tenants, %d connections, %d %% reads, connections by %s\n", o.vfs, o.load.tenants, o.load.conns, o.load.reads, r.Backend)
	fmt.Fprintf(out, "%.0f requests/s, p50 %.2f ms, p99 %.2f ms, max %.2f ms, %d threads, %d errors; ended in %.0f ms\n",
		r.rate(), milliseconds(r.P50), milliseconds(r.P99), milliseconds(r.Max), r.Threads, r.Errors, milliseconds(r.Ended))
	return r.failed()
}

// failed returns the error of failed requests, nil if there is none.
func (r *result) failed() error {
	if r.Errors > 0 {
		return fmt.Errorf("%d requests failed, first: %w", r.Errors, r.Err)
	}
	if r.Requests == 0 {
		return errNothing
	}
	return nil
}

// measure starts the service in a separate process, with new databases, and runs the
// load against it.
func measure(ctx context.Context, o options) (r *result, err error) {
	dir, remove, err := scratch(o.dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	o.dir = dir
	p, err := start(ctx, o.config)
	if err != nil {
		return nil, err
	}
	r, err = o.load.put(ctx, p.addr)
	begin := time.Now()
	cpu, ended := p.stop()
	if err = errors.Join(err, ended); err != nil {
		return nil, err
	}
	r.CPU, r.Ended = cpu, time.Since(begin)
	return r, nil
}

// process is the service in a separate process.
type process struct {
	cmd  *exec.Cmd
	in   io.Closer
	addr string
}

func start(ctx context.Context, c config) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-stdin", "-addr", "127.0.0.1:0", "-dir", c.dir, "-vfs", c.vfs, "-open", strconv.Itoa(c.open), "-backup", c.backup)
	// It ends with its standard input, also when this process dies.
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel = in.Close
	cmd.WaitDelay = patience
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), listening)
	if err != nil || !ok {
		_ = in.Close()
		return nil, errors.Join(fmt.Errorf("the service does not start: %s", said.String()), cmd.Wait())
	}
	return &process{cmd, in, addr}, nil
}

// stop ends the service by closing its standard input and returns the processor
// time that it has used.
func (p *process) stop() (time.Duration, error) {
	_ = p.in.Close()
	err := p.cmd.Wait()
	if err != nil {
		err = fmt.Errorf("the service: %w: %s", err, p.cmd.Stderr)
	}
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime(), err
}
