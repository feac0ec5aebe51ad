// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/soak"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

const soakLong = `soak runs all packages of ringside at the same time, at full load, and checks every byte:

  files    seeded scenarios: files in all three modes, batches, appends, reactors, operations that
           are cancelled or whose file is closed while they run
  sockets  seeded scenarios of unet; echo servers of unet/event on io_uring and on epoll; net/http on
           unet, client and server
  watch    seeded scenarios of watched descriptors, on epoll and on io_uring
  sqlite   databases of "ringside-log" and "ringside", in WAL and rollback mode, with writers and readers
           that check for acknowledged rows, and integrity_check at the end

It works in rounds of at most half a minute. At the end of each round everything is closed, and no
descriptor or goroutine may remain. In a run of seven rounds or more, resident memory and heap may grow by
at most a quarter and a few MiB after the first sixth of the rounds. The first wrong byte, unexpected error, leak or growth
ends the run, as does an operation that hangs for a minute. soak then prints the command that replays the
scenario.

Where io_uring cannot be used it prints that and tests the fallbacks.

Its files, less than %d MiB at any time, are in a new directory, which is removed at the end. It syncs as
other programs do, which keeps the disk busy.

Exit codes: 0 success, 1 a check failed, 2 bad arguments, 130 interrupted (within a second, with
the summary).`

// soakCommand is "ringside soak".
type soakCommand struct {
	o    soak.Options
	json bool
	// run is soak.Run, and need is datafile.Need.
	run  func(context.Context, soak.Options) (*soak.Summary, error)
	need func(dir string, bytes int64) error
}

// newSoakCmd returns "ringside soak".
func newSoakCmd() *cobra.Command {
	s := &soakCommand{run: soak.Run, need: datafile.Need}
	cmd := &cobra.Command{
		Use:     "soak",
		Short:   "Run all packages at full load, and check every byte",
		Long:    fmt.Sprintf(soakLong, soak.DiskMiB),
		Example: "  ringside soak                                  # ten minutes\n  ringside soak --for 1h --json > soak.json      # a line of JSON every ten seconds\n  ringside soak --rows files,sqlite --dir /mnt   # a part of it, on another disk",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.execute(cmd) },
	}
	f := cmd.Flags()
	f.DurationVar(&s.o.For, "for", 10*time.Minute, "how long")
	f.Uint64Var(&s.o.Seed, "seed", 0, "seed of all random choices (0: a new one, which is printed)")
	f.StringVar(&s.o.Dir, "dir", suite.DefaultDir(), "make files in this `directory`")
	f.StringSliceVar(&s.o.Rows, "rows", soak.Rows, "rows to run: "+strings.Join(soak.Rows, ", "))
	f.BoolVar(&s.json, "json", false, "print JSON: a line for each moment, the last one is the summary")
	f.Uint64Var(&s.o.Replay, "replay", 0, "repeat the scenario of this `seed`, in the row that --rows names")
	takesWords(cmd, suite.Words{"rows": soak.Rows})
	return cmd
}

// execute soaks and prints.
func (s *soakCommand) execute(cmd *cobra.Command) error {
	if err := s.o.Check(); err != nil {
		return usageError{err}
	}
	if err := cmp.Or(wantDirectory("--dir", s.o.Dir), s.need(s.o.Dir, soak.DiskMiB<<20)); err != nil {
		return err
	}
	// Every JSON reader represents 32 bits exactly.
	for s.o.Seed == 0 {
		s.o.Seed = uint64(rand.Uint32())
	}
	out := cmd.OutOrStdout()
	s.o.Every = 10 * time.Second
	if isTerminal(out) {
		s.o.Every = time.Second
	}
	if !s.json {
		fmt.Fprintf(out, "soaking for %v with seed %d in %s\n", s.o.For, s.o.Seed, s.o.Dir)
	}
	s.o.Line = func(now soak.Status) { s.line(out, now) }
	sum, err := s.run(cmd.Context(), s.o)
	if sum == nil {
		return err
	}
	if printErr := s.summary(out, sum); printErr != nil {
		return printErr
	}
	switch {
	case sum.Failed():
		return exitStatus(exitFailure)
	case err != nil:
		return err
	case sum.Interrupted:
		return fmt.Errorf("after %.0f s: %w", sum.Seconds, context.Canceled)
	}
	return nil
}

// line prints the status. On a terminal it replaces the previous line.
func (s *soakCommand) line(out io.Writer, now soak.Status) {
	switch {
	case s.json:
		_ = json.NewEncoder(out).Encode(now)
	case isTerminal(out):
		fmt.Fprintf(out, "\r%v\x1b[K", now)
	default:
		fmt.Fprintln(out, now)
	}
}

// summary prints the summary.
func (s *soakCommand) summary(out io.Writer, sum *soak.Summary) error {
	if s.json {
		return json.NewEncoder(out).Encode(map[string]any{"summary": sum})
	}
	if isTerminal(out) {
		fmt.Fprint(out, "\r\x1b[K")
	}
	_, err := io.WriteString(out, sum.Text())
	return err
}
