// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/generator"
	"github.com/ringside-io/ringside/examples/http-watch/server"
	"github.com/ringside-io/ringside/watch"
)

// HTTP runs the web server of examples/http-watch in this process, with requests made by ab.
type HTTP struct {
	// Ask is the job of the client. Run fills in the address.
	Ask generator.Job `json:"ask"`
}

// Run serves until all requests have been made. The CPU time is that of the server.
func (w *HTTP) Run(ctx context.Context, engine string, _ measure.Plan) (s measure.Sample, err error) {
	b, err := watchMode(engine)
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
	ask := w.Ask
	ask.Addr = srv.Addr().String()
	before, known := measure.CPUTime()
	asked, err := ask.Run(ctx)
	if err != nil {
		return measure.Sample{}, err
	}
	if after, ok := measure.CPUTime(); known && ok {
		cpu := after - before
		s.CPU = &cpu
	}
	s.Ops, s.Elapsed, s.P50, s.P99, s.Max = asked.Ops, asked.Elapsed, asked.P50, asked.P99, asked.Max
	return s, nil
}
