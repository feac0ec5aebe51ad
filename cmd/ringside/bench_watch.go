// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

const benchWatchLong = `watch measures the cost of readiness events: package watch with epoll against package watch with
io_uring. --workload selects from

  events  descriptors that become ready (default)
  http    requests to the web server of examples/http-watch

events: all active eventfds are written to, awaited and read, repeatedly. Each pair of sockets has one
message in flight, which either end sends back. The same writes and reads on descriptors without a
watcher are the floor. Batches with a watcher and batches of the floor alternate, and the median of about
a hundred batches of each counts. For eventfds ns/op is the time above the floor: the cost of watching. For
sockets it is the whole time, since their floor varies by as much as watching takes. A wake is requested
over a channel, which is part of the time, and has no floor.

By default 1, 10, 100 and 1000 eventfds are watched edge-triggered, 100 also with 10,000 idle ones,
level-triggered and one-shot, then 100 pairs of sockets, then wakes: about 30 seconds. --mode,
--active and --idle replace these cells by the grid of the values that they name.

http: 100,000 requests of a short page, 10 at a time, each with a new connection, then with persistent
connections: about two minutes. The program ab (Debian: apt-get install apache2-utils) sends them.

Engines that cannot be used here, and measurements for which a process may not open enough descriptors
(ulimit -n), are left out and named. RINGSIDE_BACKEND has no effect, because each engine requests its backend.

Allocations are those of the whole process. 2.00x means half the time of epoll.`

const benchWatchExample = `  ringside bench watch
  ringside bench watch --json watch.json
  ringside bench watch --source eventfd --mode edge,level --active 10,100 --pairs 10
  ringside bench watch --active 100 --idle 0,1000,10000 --source eventfd
  ringside bench watch --workload http --json watch-http.json`

// newBenchWatchCmd returns "ringside bench watch".
func newBenchWatchCmd() *cobra.Command {
	b := &watchBench{}
	return newSuiteCmd("watch", "Measure events of watched descriptors, epoll against io_uring", benchWatchLong, benchWatchExample, suite.WatchWords(), b, func(f *pflag.FlagSet) {
		f.StringSliceVar(&b.Workloads, "workload", nil, "what is measured: events, http (default: events)")
		f.IntVar(&b.Requests, "requests", 0, "requests of a round (default 100000)")
		f.IntVar(&b.Connections, "connections", 0, "requests at a time (default 10)")
		f.StringSliceVar(&b.Sources, "source", nil, "sources of events: eventfd, socketpair, wake")
		f.StringSliceVar(&b.Modes, "mode", nil, "how descriptors are watched: edge, level, one-shot")
		f.IntSliceVar(&b.Active, "active", nil, "numbers of descriptors, or pairs, that have events, such as 10,100")
		f.IntSliceVar(&b.Idle, "idle", nil, "numbers of eventfds that have none, such as 0,10000")
		f.StringSliceVar(&b.Engines, "engine", nil, "engines to measure: epoll, io_uring; others are compared to the first")
	})
}

// watchBench is the suite "watch".
type watchBench struct{ suite.WatchOptions }

func (b *watchBench) configure(flags *benchFlags) error {
	b.Timing = flags.Timing
	return b.Validate()
}

func (b *watchBench) measure(ctx context.Context, env suite.Env) (*report.Run, error) {
	return suite.Watch(ctx, b.WatchOptions, env)
}
