// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/sqlitevfs"
)

const logLong = `log inspects and repairs the log that the databases of a directory share with vfs=ringside-log.

  inspect  show the commits that the log has for each database, and the effect of a replay; changes nothing
  verify   report in one line whether the log is whole and can be replayed completely
  replay   write the commits of the log into the databases, as opening one of them does
  salvage  replay the readable commits of a damaged log, and rename the log

In a directory with a log of package appendlog, inspect and verify read all of its records, and salvage accepts
its losses, as Options.AcceptLoss does: all intact records stay.

Normal operation does not need this command. The error of a refused database names the reason, and inspect
shows the details.`

// newLogCmd returns "ringside log".
func newLogCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "log",
		Short:   "Inspect, replay or salvage the log that SQLite databases share",
		Long:    logLong,
		Example: "  ringside log inspect /var/lib/app\n  ringside log verify /backup/app # a copy that was made while no process used the directory",
		Args:    noArgs,
		RunE:    showHelp,
	}
	cmd.AddCommand(
		newLogSubCmd("inspect", "Show what a log holds and what a replay would do",
			"inspect shows for each WAL which commits the log has: commits that the WAL has already (present), commits\n"+
				"that a replay would write into it (to replay), and commits that no replay can write (lost). It changes nothing.\n"+
				"It also reads the log of a running process, and may then miss the newest commits.",
			"0 shown, 1 the log cannot be read, 2 bad arguments", inspectLog),
		newLogSubCmd("verify", "Report whether a log is whole and can be replayed",
			"verify reads the log of a directory and compares it with the databases. It changes nothing.",
			"0 all commits are replayed or can be, 1 some cannot, 2 bad arguments", verifyLog),
		newLogSubCmd("replay", "Write what a log holds into its databases",
			"replay writes the commits that the log of a directory holds into the WALs that lack them, and empties the log.\n"+
				"No process may use the log, and none may use a database that lacks commits.",
			"0 all commits are replayed, 1 some are not, 2 bad arguments", replayLog),
		newLogSubCmd("salvage", "Replay the readable commits of a damaged log, and rename the log",
			"salvage replays the readable commits of a damaged log, reports which databases may have lost commits, and\n"+
				"renames the log to ringside-wal.log.salvaged-1 or a higher number. The databases can be opened then. Copy the\n"+
				"directory first, and run inspect: a locked database or a missing permission needs no salvage.",
			"0 the log is renamed, 1 it is not, 2 bad arguments", salvageLog))
	return cmd
}

// newLogSubCmd returns a subcommand that takes a directory.
func newLogSubCmd(name, short, long, codes string, do func(w io.Writer, dir string, asJSON bool) error) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     name + " DIR",
		Short:   short,
		Long:    long + "\n\nExit codes: " + codes + ".",
		Example: "  ringside log " + name + " /var/lib/app",
		Args:    takes(1, "one directory", "name the one that has the log"),
		RunE: promptly(func(cmd *cobra.Command, args []string) error {
			if err := wantDirectory("log "+name, args[0]); err != nil {
				return err
			}
			err := do(cmd.OutOrStdout(), args[0], asJSON)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s has no log: %w", args[0], err)
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func inspectLog(w io.Writer, dir string, asJSON bool) error {
	r, err := sqlitevfs.InspectLog(dir)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = eachAppendLog(w, dir, asJSON)
		return err
	}
	if err != nil {
		return err
	}
	return printLog(w, r, asJSON, "to replay")
}

func verifyLog(w io.Writer, dir string, asJSON bool) error {
	r, err := sqlitevfs.InspectLog(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		damaged, err := eachAppendLog(w, dir, asJSON)
		if err == nil && damaged {
			err = exitStatus(exitFailure)
		}
		return err
	case err != nil:
		return err
	case asJSON:
		err = writeJSON(w, r)
	default:
		printLogHead(w, r, "to replay")
		printLogProblems(w, r)
	}
	if err == nil && !r.Sound() {
		err = exitStatus(exitFailure)
	}
	return err
}

func replayLog(w io.Writer, dir string, asJSON bool) error {
	r, err := sqlitevfs.ReplayLog(dir)
	if err != nil {
		return err
	}
	if err := printLog(w, r, asJSON, "replayed"); err != nil {
		return err
	}
	if len(r.Refused) > 0 || len(r.Skipped) > 0 {
		return exitStatus(exitFailure)
	}
	return nil
}

func salvageLog(w io.Writer, dir string, asJSON bool) error {
	if _, err := sqlitevfs.InspectLog(dir); errors.Is(err, fs.ErrNotExist) {
		return salvageAppendLog(w, dir)
	}
	r, aside, err := sqlitevfs.SalvageLog(dir)
	if err == nil || aside == "" && len(r.Refused) > 0 {
		if perr := printLog(w, r, asJSON, "replayed"); perr != nil {
			return perr
		}
	}
	if err == nil && !asJSON {
		fmt.Fprintf(w, "the log was renamed to %s\n", aside)
	}
	return err
}

func printLog(w io.Writer, r sqlitevfs.LogReport, asJSON bool, missing string) error {
	if asJSON {
		return writeJSON(w, r)
	}
	printLogHead(w, r, missing)
	if len(r.WALs) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  WAL\tcommits\tbytes\tpresent\tto replay\tlost")
		for _, l := range r.WALs {
			fmt.Fprintf(t, "  %s\t%d\t%d\t%d\t%d\t%d\n", l.Path, l.Commits, l.Bytes, l.Present, l.Missing, l.Lost)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	printLogProblems(w, r)
	return nil
}

// printLogHead prints a line about the log.
func printLogHead(w io.Writer, r sqlitevfs.LogReport, missing string) {
	fmt.Fprint(w, r.Path, ": ")
	if r.Size > 0 {
		fmt.Fprintf(w, "%d KiB, ", r.Size>>10)
	}
	switch {
	case r.InUse:
		fmt.Fprint(w, "in use, ")
	case r.Closed:
		fmt.Fprint(w, "closed, ")
	}
	fmt.Fprintf(w, "%d commits, %d %s\n", r.Commits, r.Missing, missing)
}

// printLogProblems prints each obstacle to a replay on a line.
func printLogProblems(w io.Writer, r sqlitevfs.LogReport) {
	if r.Torn {
		fmt.Fprintln(w, "  the newest batch is not whole, as after a power cut: it was never acknowledged")
	}
	for _, d := range r.Damage {
		fmt.Fprintln(w, "  damaged", d)
	}
	for _, p := range r.Refused {
		fmt.Fprintf(w, "  refused: %s, %d commits: %s\n", p.WAL, p.Commits, p.Reason)
	}
	for _, p := range r.Skipped {
		fmt.Fprintf(w, "  not replayed: %s, %d commits: %s\n", p.WAL, p.Commits, p.Reason)
	}
}
