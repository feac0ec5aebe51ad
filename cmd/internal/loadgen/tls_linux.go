// SPDX-License-Identifier: MIT

package loadgen

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringside-io/ringside/cmd/internal/procstat"
)

// tlsLoad are connections that speak TLS, each with a goroutine: what Go's crypto/tls needs.
type tlsLoad struct {
	job      Job
	counting atomic.Bool
	ops      atomic.Int64
	bytes    atomic.Int64

	mu    sync.Mutex
	times *hdrhistogram.Histogram
	max   time.Duration
}

// runTLS does a job whose connections speak TLS.
func runTLS(ctx context.Context, job Job, mark func(begin bool)) (res Result, err error) {
	l := &tlsLoad{job: job, times: hdrhistogram.New(1, int64(latencyCap), 2)}
	failed := make(chan error, job.Connections)
	var all sync.WaitGroup
	var conns []net.Conn
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // our own server, made for the run
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
		all.Wait()
	}()
	for range job.Connections {
		c, err := d.DialContext(ctx, job.Network, job.Addr)
		if err != nil {
			return Result{}, err
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		all.Go(func() { failed <- l.talk(c) })
	}
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := wait(job.Warm); err != nil {
		return Result{}, err
	}
	mark(true)
	defer mark(false)
	cpu, err := job.cpu()
	if err != nil {
		return Result{}, err
	}
	own, _ := procstat.CPU(os.Getpid()) // 0 where it is unknown
	begin := time.Now()
	l.counting.Store(true)
	if err := wait(job.Measure); err != nil {
		return Result{}, err
	}
	l.counting.Store(false)
	res = Result{Ops: l.ops.Load(), Received: l.bytes.Load(), Elapsed: time.Since(begin), By: "goroutines"}
	end, err := job.cpu()
	if err != nil {
		return Result{}, err
	}
	res.CPU = end - cpu
	if used, err := procstat.CPU(os.Getpid()); err == nil {
		res.Busy = float64(used-own) / float64(res.Elapsed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	res.P50, res.P99 = time.Duration(l.times.ValueAtQuantile(50)), time.Duration(l.times.ValueAtQuantile(99))
	if res.Max = l.max; res.Ops == 0 {
		return Result{}, fmt.Errorf("no message came back in %v", res.Elapsed.Round(time.Millisecond))
	}
	if job.Count > 0 {
		res.Uncounted = "the load generator of TLS does not count them"
	}
	return res, nil
}

// talk sends messages on one connection and compares what comes back, until it is closed.
func (l *tlsLoad) talk(c net.Conn) error {
	msg := pattern(make([]byte, l.job.Size))
	got := make([]byte, len(msg))
	for n := uint64(0); ; n++ {
		if len(msg) >= 8 {
			binary.NativeEndian.PutUint64(msg, n)
		}
		begin := time.Now()
		if _, err := c.Write(msg); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if !bytes.Equal(msg, got) {
			return errors.New("a message came back changed")
		}
		if took := time.Since(begin); l.counting.Load() {
			l.ops.Add(1)
			l.bytes.Add(int64(len(got)))
			l.mu.Lock()
			_ = l.times.RecordValue(int64(min(took, latencyCap))) // within its range
			l.max = max(l.max, took)
			l.mu.Unlock()
		}
	}
}
