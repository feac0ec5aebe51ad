// SPDX-License-Identifier: MIT

package main

import (
	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/suite"
)

// newBenchCmd returns "ringside bench", which briefly runs the suite that answers for most
// programs.
func newBenchCmd() *cobra.Command {
	flags := &benchFlags{}
	opts := suite.FileOptions{Brief: true, Fio: suite.Never}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure ringside beside the standard library",
		Long: "bench runs the suite \"file\" briefly; other suites are run by their names. Each engine runs in\n" +
			"processes of its own, in interleaved rounds; medians and ratios of the pairs are printed.",
		Example: "  ringside bench                 # the suite file, briefly\n" +
			"  ringside bench file            # one suite, its default grid\n" +
			"  ringside bench file --full     # one suite, the whole grid\n" +
			"  ringside bench net             # echo servers on TCP\n" +
			"  ringside bench ring            # our ring beside liburing's\n" +
			"  ringside bench watch           # events of descriptors, epoll beside io_uring\n" +
			"  ringside bench sqlite          # SQLite, over our VFS and over others",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, &fileBench{opts}, flags) },
	}
	flags.register(cmd.Flags())
	cmd.Flags().StringVar(&opts.Dir, "dir", "", "create the test file in this `directory`")
	cmd.AddCommand(newBenchFileCmd(), newBenchNetCmd(), newBenchRingCmd(), newBenchSQLiteCmd(), newBenchWatchCmd())
	return cmd
}
