// SPDX-License-Identifier: MIT

package loadgen

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// runTLS runs a job with TLS. It needs a goroutine per connection, because crypto/tls has only
// blocking calls.
func runTLS(ctx context.Context, job Job, mark func(begin bool)) (res Result, err error) {
	var conns []net.Conn
	closeAll := func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	defer closeAll()
	var before time.Duration
	plan := measure.Plan{Goroutines: job.Connections, Warm: job.Warm, Measure: job.Measure, Turns: job.turns}
	plan.Between = func() (err error) {
		if job.turns == nil {
			mark(true)
		}
		before, err = job.cpu()
		return err
	}
	plan.Adjust = func(s *measure.Sample) error {
		if s.CPU != nil {
			res.Busy = float64(*s.CPU) / float64(s.Elapsed)
		}
		after, err := job.cpu()
		res.CPU = after - before
		s.CPU, s.Heap, s.Threads = &res.CPU, nil, 0 // those of the server
		return err
	}
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // our own server, made for the run
	for range job.Connections {
		c, err := d.DialContext(ctx, job.Network, job.Addr)
		if err != nil {
			return Result{}, err
		}
		conns = append(conns, c)
	}
	defer context.AfterFunc(ctx, closeAll)() // ends waiting operations
	s, err := measure.Run(ctx, plan, func(goroutine int) (measure.Op, error) { return job.exchange(conns[goroutine]), nil })
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	if err != nil {
		return Result{}, err
	}
	if job.turns != nil {
		return res, nil
	}
	mark(false)
	res.Ops, res.Elapsed = s.Ops, s.Elapsed
	res.P50, res.P99, res.Max, res.By = s.P50, s.P99, s.Max, "goroutines"
	if job.Count > 0 {
		res.Uncounted = "the load generator of TLS does not count them"
	}
	return res, err
}

// exchange returns an operation that sends a message on a connection and compares the answer.
func (j Job) exchange(c net.Conn) measure.Op {
	msg := pattern(make([]byte, j.Size))
	got, n := make([]byte, len(msg)), uint64(0)
	return func() (int, error) {
		if n++; len(msg) >= 8 {
			binary.NativeEndian.PutUint64(msg, n)
		}
		if _, err := c.Write(msg); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(c, got); err != nil {
			return 0, err
		}
		if !bytes.Equal(msg, got) {
			return 0, errors.New("a message came back changed")
		}
		return len(got), nil
	}
}
