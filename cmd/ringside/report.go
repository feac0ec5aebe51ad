// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/htmlreport"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

const reportLong = `report shows a result file of "ringside bench --json" again: the tables and words that the run
printed, or with --html the page with figures. --json prints the claims for scripts: for each
choice and each work the kind (gain, loss, none or open), and the ratios with their intervals.

Exit codes: 0 shown, 1 failure, 2 bad arguments.`

// newReportCmd returns "ringside report".
func newReportCmd() *cobra.Command {
	var page string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "report RESULT.json",
		Short:   "Show a result file as tables or as a page",
		Long:    reportLong,
		Example: "  ringside report result.json\n  ringside report result.json --html report.html\n  ringside report result.json --json | jq '.claims[] | select(.kind == \"loss\")'",
		Args:    takes(1, "one result file", "make it with 'ringside bench --json FILE'"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if asJSON && page != "" {
				return usagef("--json and --html: choose one of them")
			}
			d, err := until(cmd.Context(), func() (*report.Document, error) { return readResults(args[0]) })
			if err != nil {
				return err
			}
			run, err := d.Run()
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			switch {
			case asJSON:
				return writeJSON(cmd.OutOrStdout(), run.Findings())
			case page == "":
				return printRun(cmd, run, false, true, nil)
			}
			out, err := openOutput("--html", page, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, out.close()) }()
			return out.write(func(w io.Writer) error { return htmlreport.Write(w, run) })
		},
	}
	cmd.Flags().StringVar(&page, "html", "", "write a page with figures to this `file`, - for standard output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the claims as JSON")
	return cmd
}
