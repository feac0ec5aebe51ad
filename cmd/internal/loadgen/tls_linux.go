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
	plan := measure.Plan{Goroutines: job.Connections, Warm: job.Warm, Measure: job.Measure, Between: func() (err error) {
		mark(true)
		before, err = job.cpu()
		return err
	}}
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
	mark(false)
	after, err := job.cpu()
	res = Result{
		Ops: s.Ops, Elapsed: s.Elapsed, CPU: after - before,
		P50: s.P50, P99: s.P99, Max: s.Max, By: "goroutines",
	}
	if s.CPU != nil {
		res.Busy = float64(*s.CPU) / float64(s.Elapsed)
	}
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
