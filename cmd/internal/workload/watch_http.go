// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/ab"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/examples/http-watch/server"
	"github.com/ringside-io/ringside/watch"
)

// HTTP is the web server of examples/http-watch, in this process, and what a program of its own asks
// of it.
type HTTP struct {
	// Ask is the job, of which the address is filled in.
	Ask ab.Job `json:"ask"`
	// Program is the path of ab, or of a worker that does [AskJob]s, with its arguments.
	Program []string `json:"program"`
	// Own says that it is a worker.
	Own bool `json:"own,omitempty"`
}

// AskJob is a job for the load generator alone.
func AskJob(a ab.Job) Job { return Job{Suite: "watch", Workload: "ask", Ask: &a} }

// http serves until all is asked. CPU time is that of the server.
func (j Job) http(ctx context.Context) (s measure.Sample, err error) {
	b, err := j.backend()
	if err != nil {
		return measure.Sample{}, err
	}
	srv, err := server.New(server.Config{Addr: "127.0.0.1:0", Idle: time.Minute, Watch: watch.Options{Mode: b}})
	if err != nil {
		return measure.Sample{}, err
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer srv.Close()
		ended <- srv.Run(serving)
	}()
	defer func() {
		stop()
		if end := <-ended; !errors.Is(end, context.Canceled) {
			err = errors.Join(err, end)
		}
	}()
	s.Backend, s.Reason = srv.Backend()
	ask := j.HTTP.Ask
	ask.Addr = srv.Addr().String()
	before, known := measure.CPUTime()
	asked, err := j.HTTP.ask(ctx, ask)
	if err != nil {
		return measure.Sample{}, err
	}
	if after, ok := measure.CPUTime(); known && ok {
		cpu := after - before
		s.CPU = &cpu
	}
	s.Ops, s.Elapsed, s.Further = asked.Ops, asked.Elapsed, asked.Further
	return s, nil
}

// ask has the program do the job.
func (h *HTTP) ask(ctx context.Context, a ab.Job) (s measure.Sample, err error) {
	switch {
	case len(h.Program) == 0:
		return s, errors.New("no program that asks")
	case h.Own:
		err = measure.Process{Path: h.Program[0], Args: h.Program[1:]}.Run(ctx, AskJob(a), &s)
		return s, err
	}
	r, err := a.Run(ctx, h.Program[0])
	return asked(a, r), err
}

// ask is the load generator. It has one processor, as ab has.
func (j Job) ask(ctx context.Context) (measure.Sample, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	r, err := j.Ask.Load(ctx)
	return asked(*j.Ask, r), err
}

// asked is a result as a sample.
func asked(a ab.Job, r ab.Result) (s measure.Sample) {
	if r.Requests > 0 {
		s.Ops, s.Elapsed, s.Further = int64(r.Requests), r.Elapsed, r.Metrics(a.Connections)
	}
	return s
}
