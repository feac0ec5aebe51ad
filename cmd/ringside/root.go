// SPDX-License-Identifier: MIT

package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// newRootCmd assembles the command line. Each subcommand is one file with one constructor.
func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "ringside",
		Short: "What io_uring does for Go programs on this machine",
		Long: "ringside tells what io_uring does for Go programs on this machine.\n\n" +
			"Exit codes: 0 all well, 1 failure, 2 bad arguments, 130 interrupted.",
		Example: "  ringside probe                        # what can be used here, and what to change\n" +
			"  ringside bench                        # what it brings: ringside beside what you use now\n" +
			"  ringside bench --html report.html     # the same as a page with pictures\n" +
			"  ringside compare old.json new.json    # what an upgrade changed",
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newBenchCmd(), newCompareCmd(), newManCmd(), newProbeCmd(), newReportCmd(), newServeCmd(), newSoakCmd(), newVersionCmd(), newBenchWorkerCmd(), newEchoServerCmd(), newEchoLoadCmd())
	return root
}

// noArgs refuses arguments, naming commands that may have been meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return usagef("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usagef("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
}
