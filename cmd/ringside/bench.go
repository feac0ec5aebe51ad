// SPDX-License-Identifier: MIT

package main

import (
	"github.com/spf13/cobra"
)

const benchLong = `bench measures what io_uring does for Go programs on this machine: ringside beside what they use
now. Without the name of a suite it runs four of them briefly, in under three minutes:

  file    random reads and durable writes: os.File beside ufile
  net     echo servers: package net beside unet and its callbacks
  watch   readiness events: epoll beside io_uring, both by package watch
  sqlite  the speed tests, many databases, cold scans: the default VFS beside sqlitevfs

and says in the end what to use for what. Each engine runs in processes of its own, in interleaved
rounds; medians and ratios of the pairs are printed, and a difference is called one only where all pairs
agree and it stands out from their spread. What disturbs the numbers, such as a busy machine, a
frequency governor or a limit of the container, is said before.

--full measures the published grids of all suites, which takes most of an hour. The suites by their names
have options of their own.

Test files lie in --dir (default: $TMPDIR, else /var/tmp) and are removed in the end, also after an
interrupt.`

// newBenchCmd returns "ringside bench", which briefly runs all suites.
func newBenchCmd() *cobra.Command {
	flags := &benchFlags{}
	all := &allBench{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure ringside beside the standard library",
		Long:  benchLong,
		Example: "  ringside bench                 # all suites, briefly\n" +
			"  ringside bench --html report.html --json report.json\n" +
			"  ringside bench file            # one suite, its default grid\n" +
			"  ringside bench file --full     # one suite, the whole grid\n" +
			"  ringside bench net             # echo servers on TCP\n" +
			"  ringside bench ring            # our ring beside liburing's\n" +
			"  ringside bench watch           # events of descriptors, epoll beside io_uring\n" +
			"  ringside bench sqlite          # SQLite, over our VFS and over others",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, all, flags) },
	}
	flags.register(cmd.Flags())
	cmd.Flags().StringVar(&all.dir, "dir", "", "create test files in this `directory`")
	cmd.Flags().BoolVar(&all.full, "full", false, "measure the published grids")
	cmd.AddCommand(newBenchFileCmd(), newBenchNetCmd(), newBenchRingCmd(), newBenchSQLiteCmd(), newBenchWatchCmd())
	return cmd
}
