// SPDX-License-Identifier: MIT

package ab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// NameOwn is what the load generator of this package is called in result files.
const NameOwn = "ringside load"

// Load does the job in this process. When ctx ends it gives up, and the error matches the context's.
func (j Job) Load(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &load{job: j}
	for i := range l.spent {
		l.spent[i] = make([]time.Duration, j.Requests)
	}
	start := time.Now()
	var wg sync.WaitGroup
	for range j.Connections {
		wg.Go(func() {
			if err := l.work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	r := Result{Requests: j.Requests, Elapsed: time.Since(start)}
	if err := context.Cause(ctx); err != nil {
		return Result{}, err
	}
	for i := range l.spent {
		r.Phases[i] = describe(l.spent[i])
	}
	r.Percentiles = percentiles(l.spent[total])
	return r, nil
}

// Places in the order of [Phases].
const (
	connect = iota
	processing
	waiting
	total
)

// load is a job at work.
type load struct {
	job   Job
	begun atomic.Int64 // requests
	// spent has the times of each request, phase by phase.
	spent [4][]time.Duration
}

// client is one of the connections that are used at a time.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	head []byte      // of a request
	free func() bool // keeps the end of the context from ending conn
}

// work makes requests, one after the other, until enough are begun.
func (l *load) work(ctx context.Context) error {
	c := &client{in: bufio.NewReader(nil), head: l.job.head()}
	defer func() { c.close() }()
	for {
		i := int(l.begun.Add(1)) - 1
		if i >= l.job.Requests || ctx.Err() != nil {
			return nil
		}
		if err := l.request(ctx, c, i); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
}

// head is a request as ab sends it.
func (j Job) head() []byte {
	keep := ""
	if j.KeepAlive {
		keep = "Connection: Keep-Alive\r\n"
	}
	return fmt.Appendf(nil, "GET / HTTP/1.0\r\n%sHost: %s\r\nUser-Agent: ringside\r\nAccept: */*\r\n\r\n", keep, j.Addr)
}

// request makes the i-th request.
func (l *load) request(ctx context.Context, c *client, i int) error {
	start := time.Now()
	connected := start
	if c.conn == nil {
		if err := c.dial(ctx, l.job.Addr); err != nil {
			return err
		}
		connected = time.Now()
	}
	if _, err := c.conn.Write(c.head); err != nil {
		return err
	}
	asked := time.Now()
	if _, err := c.in.Peek(1); err != nil {
		return err
	}
	answered := time.Now()
	kept, err := c.answer()
	if err != nil {
		return err
	}
	end := time.Now()
	if !kept {
		c.close()
	}
	l.spent[connect][i] = connected.Sub(start)
	l.spent[processing][i] = end.Sub(connected)
	l.spent[waiting][i] = answered.Sub(asked)
	l.spent[total][i] = end.Sub(start)
	return nil
}

// dial connects. The connection ends with the context.
func (c *client) dial(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	c.conn = conn
	c.in.Reset(conn)
	c.free = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return nil
}

// answer reads to the end of an answer, and of the connection if it is not kept, and reports whether it
// is.
func (c *client) answer() (kept bool, err error) {
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return false, err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return false, err
	}
	if r.StatusCode != http.StatusOK {
		return false, fmt.Errorf("answered %s", r.Status)
	}
	if !r.Close {
		return true, nil
	}
	if _, err := c.in.Peek(1); err != io.EOF {
		return false, fmt.Errorf("the server does not close: %w", err)
	}
	return false, nil
}

func (c *client) close() {
	if c.conn != nil {
		c.free()
		_ = c.conn.Close() // All that was asked for has come.
		c.conn = nil
	}
}
