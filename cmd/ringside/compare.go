// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

const compareLong = `compare compares two result files of "ringside bench --json": before and after an upgrade of the
kernel, of Go or of ringside.

For each engine in each cell that both files have it prints the medians, the spread of the rounds around
them, the change, the probability p of such samples without a difference, and the numbers of samples. A verdict
means that the true change is larger than 3 %. p is that of a t-test of logarithms, which allows for the
spread within each file and for the drift of the machine between the files (the spread of the changes of
all cells). All verdicts are judged together, as the claims of bench are: two files of one binary have no
verdict in 19 of 20 comparisons. Four starts or more are needed on both sides, so files of versions that kept
no samples get no verdict. Notes of both runs are printed first.

The machine may have changed between the two files. If a difference matters, measure again in the other order.

Exit codes: 0 compared (with --fail: nothing is worse), 1 failure (with --fail: or something is
worse), 2 bad arguments.`

// newCompareCmd returns "ringside compare".
func newCompareCmd() *cobra.Command {
	var asJSON, all, fail bool
	cmd := &cobra.Command{
		Use:     "compare OLD.json NEW.json",
		Short:   "Compare two result files",
		Long:    compareLong,
		Example: "  ringside bench --json before.json\n  ringside bench --json after.json     # after the upgrade\n  ringside compare before.json after.json",
		Args:    takes(2, "two result files", "make them with 'ringside bench --json FILE'"),
		RunE: promptly(func(cmd *cobra.Command, args []string) error {
			before, err := readResults(args[0])
			if err != nil {
				return err
			}
			after, err := readResults(args[1])
			if err != nil {
				return err
			}
			c := report.Compare(before, after)
			if err := c.Disjoint(args[0], args[1]); err != nil {
				return err
			}
			if err := writeComparison(cmd, c, asJSON, all); err != nil {
				return err
			}
			if fail && c.Count(report.Worse) > 0 {
				return exitStatus(exitFailure)
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&all, "all", false, "print unchanged cells, and all measurements that only one file has")
	f.BoolVar(&fail, "fail", false, "exit with 1 if anything is worse")
	return cmd
}

func writeComparison(cmd *cobra.Command, c *report.Comparison, asJSON, all bool) error {
	out := cmd.OutOrStdout()
	if !asJSON {
		return c.WriteText(out, all, report.Style{Color: wantColor(out)})
	}
	return writeJSON(out, c)
}

// writeJSON writes indented JSON.
func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func readResults(path string) (*report.Document, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, err := report.ReadDocument(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}
