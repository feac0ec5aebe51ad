// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/clone"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

const benchNetLong = `net measures servers on sockets over the loopback. --workload selects from

  echo       each connection has one message in flight: it is sent, comes back, is compared, and the
             next one is sent (default)
  handlers   the same with 20 connections, where the server computes for 5, 50 or 500 µs or sleeps for
             500 µs before it sends back
  computing  echo with 20 connections, while one goroutine of the server computes and never blocks, and while
             one per processor does; the rate of computation is reported, and no processor time, as most of it
             is that of the computation
  pipeline   echo with 16 messages at a time on each connection: all are sent, then all answers are awaited
  stream     1 MiB to the server, which answers with a byte (in), and the reverse (out)
  churn      echo with a new connection for each message, which ends with a reset
  dial       calls by a server without a pool: for each message it dials another server, sends the message there,
             reads the echo, and ends that connection with a reset. Both servers are in one process and
             accept with package net, so that the engine only has the connections that it dials
  unix       echo on Unix sockets
  udp        echo of datagrams; one that is lost is sent again after 100 ms. xnet-batch (in a build with -tags peers)
             and ringside-batch receive and send up to 64 with one call, by golang.org/x/net and by unet's BatchConn
  udp-bulk   a datagram of 128 bytes, which is answered with 64 of 1200: by 64 calls (std), by one WriteBatch of
             golang.org/x/net (xnet-batch), and by segments that the kernel cuts (ringside-batch, ringside-event)
  tls        echo on TLS of crypto/tls, over net, unet and unet/event
  http       net/http on unet's listener against net/http on net's. --client chooses the load generator: own, that
             of ringside; ab and ab-k, ab without and with keep-alive; wrk
  fasthttp   the same with a server of fasthttp, in a build with -tags peers
  idle       idle connections: the processor time of 10 seconds (--idle-for) with 1000 of them, and the
             memory of 10,000. Each has a goroutine in Read and a buffer of 128 bytes;
             the callback server needs neither

The engines are package net (std), unet's net.Conn (ringside-conn), the same with plain calls instead
of the ring (ringside-plain), the callback server unet/event (ringside-event), the same on epoll
(ringside-event-epoll), and a server in C on liburing. The server in C is
compiled when the suite runs, which needs a C compiler and liburing (Debian: apt-get install gcc libc6-dev
liburing-dev); without them it is left out. gnet (with a loop for each processor, and with one:
gnet-loop) and monoio are compiled from clones of their repositories: --gnet DIR, --monoio DIR. The go command and cargo download their dependencies. Without a clone they are left out.

Server and load generator are separate processes. The generator has one thread and costs about as much
as a server. --pin keeps the server on one processor and the generator on the others, so that the server
bounds the rate; the report names the cells in which the generator bounds it. By default echoes of 128 bytes are measured with
1 to 1000 connections, and of 1024 bytes with 1, 100 and 1000: about two minutes. --full measures all
workloads, echoes with up to 10,000 connections, and std, ringside-conn and ringside-event with GOMAXPROCS=1
for the server. Echoes of 1024 bytes and those with GOMAXPROCS=1 are measured with fewer engines unless
--engine names them.

Ratios are those to std. CPU time and allocations are those of the server's process. The kernel charges work outside of the server's
threads, of which the loopback causes much, to the process that it interrupts. System calls are counted by the
kernel's tracepoint in a separate window after each measured one, which needs root; enters/op, the
server's own count of io_uring_enter, does not. With one connection all rates depend on which processor
the kernel wakes: expect a wide spread.`

const benchNetExample = `  ringside bench net
  ringside bench net --workload echo --full --duration 350ms --json net-echo.json
  ringside bench net --workload handlers,http
  ringside bench net --workload http --client own,ab,ab-k,wrk
  ringside bench net --connections 100 --size 128,4096 --engine std,ringside-event`

// newBenchNetCmd returns "ringside bench net".
func newBenchNetCmd() *cobra.Command {
	b := &netBench{}
	return newSuiteCmd("net", "Measure servers on TCP", benchNetLong, benchNetExample, suite.NetWords(), b, func(f *pflag.FlagSet) {
		f.StringSliceVar(&b.Workloads, "workload", nil, "what is measured: echo, handlers, computing, pipeline, stream, churn, dial, unix, udp, udp-bulk, tls, http, fasthttp, idle (default: echo, with --full all)")
		f.IntSliceVar(&b.Connections, "connections", nil, "numbers of connections, such as 1,100,1000")
		f.IntSliceVar(&b.Sizes, "size", nil, "lengths of messages in bytes, such as 128,1024")
		f.IntSliceVar(&b.Bodies, "body", nil, "lengths of the bodies of HTTP requests in bytes: only these are measured")
		f.IntSliceVar(&b.Procs, "procs", nil, "GOMAXPROCS of the server, 0 for the system's choice, such as 0,1")
		f.StringSliceVar(&b.Engines, "engine", nil, "engines to measure: "+strings.Join(suite.NetWords()["engine"], ", ")+"; others are compared to the first")
		f.StringSliceVar(&b.Clients, "client", nil, "the HTTP load generators: own, ab, ab-k, wrk (default: own, with --full all)")
		f.DurationVar(&b.IdleFor, "idle-for", 10*time.Second, "measured time of each round of the workload idle")
		b.Clones = map[string]string{}
		for _, name := range []string{clone.Gnet, clone.Monoio} {
			f.Var(dirFlag{name, b.Clones}, name, "a clone of the repository of "+name+" in this `directory`: adds the engine")
		}
		f.BoolVar(&b.Pin, "pin", false, "keep the server on one processor and the load generator on the others")
		f.BoolVar(&b.Full, "full", false, "measure the whole grid, and all workloads unless they are named")
	})
}

// dirFlag is a flag with the directory of a clone.
type dirFlag struct {
	name string
	dirs map[string]string
}

func (d dirFlag) String() string { return d.dirs[d.name] }

func (d dirFlag) Set(dir string) error {
	d.dirs[d.name] = dir
	return wantDirectory("--"+d.name, dir)
}

func (dirFlag) Type() string { return "directory" }

// netBench is the suite "net".
type netBench struct{ suite.NetOptions }

func (b *netBench) configure(flags *benchFlags) error {
	b.Timing = flags.Timing
	return b.Validate()
}

func (b *netBench) measure(ctx context.Context, env suite.Env) (*report.Run, error) {
	return suite.Net(ctx, b.NetOptions, env)
}

// These are hidden commands for the processes of a round.
const (
	echoServerName = "bench-echo-server"
	echoLoadName   = "bench-echo-load"
)

func newEchoServerCmd() *cobra.Command {
	return &cobra.Command{
		Use:    echoServerName + " SETUP",
		Short:  "Serve as a setup in JSON says, until standard input ends",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var setup echo.Setup
			if err := json.Unmarshal([]byte(args[0]), &setup); err != nil {
				return usagef("setup of the server: %w", err)
			}
			return said(cmd, echo.Serve(setup, measure.WorkerInput(), cmd.OutOrStdout()))
		},
	}
}

func newEchoLoadCmd() *cobra.Command {
	return &cobra.Command{
		Use:    echoLoadName,
		Short:  "Send messages: a job as JSON on standard input, its result on standard output",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return said(cmd, echo.ServeLoad(cmd.Context(), measure.WorkerInput(), cmd.OutOrStdout()))
		},
	}
}

// said prints an error for the parent, which adds its own prefix.
func said(cmd *cobra.Command, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), err)
	return exitStatus(exitFailure)
}

// netServers runs servers and load generators as processes of the program, which is this one, or as
// the program of a foreign engine.
func netServers(program string) suite.Servers {
	of := func(peer suite.NetPeer) echo.Runner {
		return echo.Runner{
			Load: []string{program, echoLoadName},
			Server: func(s echo.Setup) []string {
				if peer != nil {
					return peer.Command()
				}
				// Marshalling strings and numbers does not fail.
				setup, _ := json.Marshal(s)
				return []string{program, echoServerName, string(setup)}
			},
		}
	}
	return suite.Servers{
		Round: func(ctx context.Context, s echo.Setup, peer suite.NetPeer, job loadgen.Job) (echo.Sample, error) {
			return of(peer).Round(ctx, s, job)
		},
		Open: func(ctx context.Context, s echo.Setup, peer suite.NetPeer, job loadgen.Job) (measure.Player, error) {
			return of(peer).Open(ctx, s, job)
		},
		Client: func(ctx context.Context, s echo.Setup, d suite.Driver) (echo.Sample, error) {
			return of(nil).RoundWith(ctx, s, func(addr string) (loadgen.Result, error) { return d.Drive(ctx, addr) })
		},
		Idle: func(ctx context.Context, s echo.Setup, peer suite.NetPeer, job echo.IdleJob) (echo.IdleSample, error) {
			return of(peer).Idle(ctx, s, job)
		},
	}
}
