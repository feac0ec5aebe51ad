// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

const benchNetLong = `net measures echo servers on TCP over the loopback. Each connection has one message on its way: it
is sent, comes back, is compared, and the next one is sent.

The engines are package net (std), cloudwego/netpoll, a server in C on liburing, the callback server
unet/event, the same with SQPOLL, and unet's net.Conn. Server and load generator are processes of
their own; the generator has one thread and costs about as much as a server. By default messages
of 128 bytes are measured with 1 to 1000 connections and of 1024 bytes with 1, 100 and 1000: about
90 seconds. --full adds the rest, and 10,000 connections.

The server in C is compiled when the suite runs, which takes a C compiler and liburing (Debian:
apt-get install gcc libc6-dev liburing-dev). Without them the others are measured.

CPU time and allocations are the server's; what the kernel does for it outside of its threads, on the
loopback much of the work, is charged to whom it interrupts. enters/op counts io_uring_enter, where
the engine uses it. The last column is the rate divided by that of std, pair by pair. With one
connection all rates depend on which processor the kernel wakes: expect a wide spread.`

const benchNetExample = `  ringside bench net
  ringside bench net --json net-echo.json
  ringside bench net --connections 100 --size 128,4096 --engine std,ringside-event`

// newBenchNetCmd returns "ringside bench net".
func newBenchNetCmd() *cobra.Command {
	flags := &benchFlags{}
	var opts suite.NetOptions
	cmd := &cobra.Command{
		Use:     "net",
		Short:   "Measure echo servers on TCP",
		Long:    benchNetLong,
		Example: benchNetExample,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runBench(cmd, &netBench{opts}, flags) },
	}
	f := cmd.Flags()
	flags.register(f)
	f.IntSliceVar(&opts.Connections, "connections", nil, "numbers of connections, such as 1,100,1000")
	f.IntSliceVar(&opts.Sizes, "size", nil, "lengths of messages in bytes, such as 128,1024")
	f.StringSliceVar(&opts.Engines, "engine", nil, "engines to measure; others are compared to the first")
	f.BoolVar(&opts.Full, "full", false, "all sizes at all numbers of connections")
	return cmd
}

// netBench is the suite "net".
type netBench struct{ opts suite.NetOptions }

func (b *netBench) configure(flags *benchFlags) error {
	b.opts.Pairs, b.opts.Duration = flags.pairs, flags.duration
	return b.opts.Validate()
}

func (*netBench) layout() report.Layout { return report.NetLayout }

func (b *netBench) measure(ctx context.Context, tools benchTools) (*report.Run, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return suite.Net(ctx, b.opts, suite.NetEnv{
		Round: func(ctx context.Context, engine string, peer suite.NetPeer, job loadgen.Job) (echo.Sample, error) {
			r := echo.Runner{Load: []string{self, echoLoadName}}
			r.Server = func(string) []string { return []string{self, echoServerName, engine} }
			if engine == liburing.Name {
				r.Server = func(string) []string { return peer.Command() }
			}
			return r.Round(ctx, engine, job)
		},
		Descriptors: descriptors,
		BuildPeer:   buildEcho,
		Progress:    tools.bar,
	})
}

func buildEcho(ctx context.Context) (suite.NetPeer, error) {
	p, err := liburing.BuildEcho(ctx)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Hidden commands that are the processes of a round.
const (
	echoServerName = "bench-echo-server"
	echoLoadName   = "bench-echo-load"
)

func newEchoServerCmd() *cobra.Command {
	return &cobra.Command{
		Use:    echoServerName + " ENGINE",
		Short:  "Echo until standard input ends",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return said(cmd, echo.Serve(args[0], measure.WorkerInput(), cmd.OutOrStdout()))
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

// said leaves an error to the parent, which prints it with its own prefix.
func said(cmd *cobra.Command, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), err)
	return exitStatus(exitFailure)
}
