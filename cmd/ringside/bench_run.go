// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/htmlreport"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/progress"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/suite"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// benchmark is a suite with its options.
type benchmark interface {
	// configure sets the common options and returns an error for invalid ones.
	configure(*benchFlags) error
	// Limit sets the time in which measure ends.
	Limit(time.Duration)
	measure(context.Context, suite.Env) (*report.Run, error)
}

// newSuiteCmd returns the command of a suite. define adds the flags of its options.
func newSuiteCmd(name, short, long, example string, words suite.Words, b benchmark, define func(*pflag.FlagSet)) *cobra.Command {
	flags := &benchFlags{}
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long, Example: example, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, b, flags) },
	}
	flags.register(cmd.Flags(), "4s for two engines of a cell")
	define(cmd.Flags())
	takesWords(cmd, words)
	return cmd
}

// runBench runs a suite, prints the results and writes the result files.
func runBench(cmd *cobra.Command, b benchmark, flags *benchFlags) (err error) {
	if err := flags.check(cmd.Flags()); err != nil {
		return err
	}
	if err := b.configure(flags); err != nil {
		return usageError{err}
	}
	if err := roomFor(b); err != nil {
		return err
	}
	outputs, err := openOutputs(cmd.OutOrStdout(), flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outputs.close()) }()
	spoilers := hostinfo.Spoilers()
	run, err := runMeasured(cmd, b)
	err = outOfSpace(b, err)
	if run != nil && slices.ContainsFunc(run.Claims(), func(c report.Claim) bool { return c.Kind == report.Open }) {
		run.Notes = append(run.Notes, spoilers...)
	}
	// A run in which parts or everything was skipped has a result: the others, and the reasons.
	// The files come first: printing may end the process, if a pager has ended.
	var written error
	if err == nil || errors.Is(err, suite.ErrNothing) || errors.Is(err, suite.ErrFailed) {
		written = outputs.write(run)
	}
	return errors.Join(printRun(cmd, run, flags.quiet(), flags.tables, err), err, written)
}

// roomFor returns an error if the directory for the benchmark's files is not a directory or has too
// little space. It is called before anything is measured.
func roomFor(b benchmark) error {
	parts := []benchmark{b}
	if all, ok := b.(*allBench); ok {
		if err := wantDirectory("--dir", all.dir); err != nil {
			return err
		}
		parts = nil
		for _, p := range all.parts {
			parts = append(parts, p.b)
		}
	}
	for _, p := range parts {
		in, ok := p.(interface{ Space() (string, int64) })
		if !ok {
			continue
		}
		dir, bytes := in.Space()
		if err := wantDirectory("--dir", dir); err != nil {
			return err
		}
		if file, ok := p.(*fileBench); ok && file.Path != "" {
			if _, err := datafile.SizeOf(file.Path); err != nil {
				return fmt.Errorf("--path: %w: name a file or a block device that can be read", err)
			}
		}
		if dir == "" {
			continue
		}
		if err := datafile.Need(dir, bytes); err != nil {
			return err
		}
	}
	return nil
}

// outOfSpace adds the remedy to an error about a full device, quota or database. Errors of worker
// processes are only text, and SQLite calls some of these an I/O error.
func outOfSpace(b benchmark, err error) error {
	if err == nil || strings.Contains(err.Error(), "--dir") {
		return err
	}
	for _, said := range []string{syscall.ENOSPC.Error(), "disk quota exceeded", "database or disk is full"} {
		if strings.Contains(err.Error(), said) {
			return fmt.Errorf("the device filled up during the run: %w: free some space, or choose another directory with --dir", err)
		}
	}
	var full *datafile.SpaceError
	if strings.Contains(err.Error(), "disk I/O error") && errors.As(roomFor(b), &full) {
		return fmt.Errorf("the device filled up during the run: %w: %w", err, full)
	}
	return err
}

// runMeasured runs the suite with a progress bar on a terminal.
func runMeasured(cmd *cobra.Command, b benchmark) (*report.Run, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var bar *progress.Bar
	if stderr := cmd.ErrOrStderr(); isTerminal(stderr) {
		bar = progress.New(stderr)
		defer bar.Close()
	}
	worker := measure.Process{Path: self, Args: []string{workerName}}
	return b.measure(cmd.Context(), suite.NewEnv(suite.Workers{
		Round: func(ctx context.Context, job workload.Job) (s measure.Sample, err error) {
			err = worker.Run(ctx, job, &s)
			return s, err
		},
		Open: func(ctx context.Context, job workload.Job) (measure.Player, error) { return worker.Open(ctx, job) },
	}, netServers(self), bar))
}

// printRun prints the answer, after header and tables if they are asked for, unless standard output is
// a result file. It labels a run that ended early.
func printRun(cmd *cobra.Command, run *report.Run, quiet, tables bool, runErr error) error {
	if run == nil {
		return nil
	}
	out := cmd.OutOrStdout()
	if quiet || runErr != nil && len(run.Cells) == 0 {
		return run.WriteSkipped(cmd.ErrOrStderr())
	}
	style := report.Style{Color: wantColor(out), Width: screenWidth(out)}
	switch {
	case errors.Is(runErr, suite.ErrFailed):
		fmt.Fprintf(out, "FAILED: %v\n\n", runErr)
	case runErr != nil:
		fmt.Fprintf(out, "INCOMPLETE: the run ended early; these are the cells measured until then.\n\n")
	}
	if tables {
		if err := writeTables(out, run, style); err != nil {
			return err
		}
	}
	for i, line := range run.Answer() {
		color := map[string]string{"gain ": report.Green, "lose ": report.Red, "loss ": report.Red}[line[:5]]
		if i == 0 {
			color = report.Bold
		}
		if _, err := fmt.Fprintln(out, style.Paint(color, line)); err != nil {
			return err
		}
	}
	for _, n := range run.Notes {
		fmt.Fprintf(out, "note: %s\n", n)
	}
	return run.WriteSkipped(out)
}

// writeTables writes the circumstances of the run and the tables of each suite.
func writeTables(out io.Writer, run *report.Run, style report.Style) error {
	if err := run.Host.WriteHeader(out); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, name := range run.Suites() {
		if err := run.Suite(name).WriteTable(out, style); err != nil {
			return err
		}
	}
	return nil
}

// outputs are the requested result files.
type outputs []*outputFile

// openOutputs opens the result files before anything is measured, so that a wrong path is found at
// once.
func openOutputs(stdout io.Writer, flags *benchFlags) (outputs, error) {
	var out outputs
	for _, o := range [][2]string{{"--json", flags.json}, {"--benchfmt", flags.benchfmt}, {"--html", flags.html}} {
		f, err := openOutput(o[0], o[1], stdout)
		if err != nil {
			return nil, errors.Join(err, out.close())
		}
		out = append(out, f)
	}
	return out, nil
}

func (o outputs) write(run *report.Run) (err error) {
	page := func(w io.Writer) error { return htmlreport.Write(w, run) }
	for i, render := range []func(io.Writer) error{run.WriteJSON, run.WriteBench, page} {
		err = errors.Join(err, o[i].write(render))
	}
	return err
}

func (o outputs) close() (err error) {
	for _, f := range o {
		err = errors.Join(err, f.close())
	}
	return err
}

const workerName = "bench-worker"

// newBenchWorkerCmd returns the hidden command that runs one round as a worker process.
func newBenchWorkerCmd() *cobra.Command {
	return &cobra.Command{
		Use:    workerName,
		Short:  "Run one round: read a job as JSON from standard input, write its sample to standard output",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := measure.ServeWorker(cmd.Context(), measure.WorkerInput(), cmd.OutOrStdout(),
				func(ctx context.Context, job workload.Job) (measure.Sample, error) { return job.Run(ctx) })
			if err == nil || errors.Is(err, context.Canceled) {
				return err
			}
			// The parent adds its own prefix.
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			return exitStatus(exitFailure)
		},
	}
}
