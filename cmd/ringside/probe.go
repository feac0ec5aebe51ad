// SPDX-License-Identifier: MIT

package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/probereport"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/internal/probe"
)

const probeLong = `probe reports which parts of io_uring this process can use, and which backend each package of ringside
would choose and why. For a missing feature it prints the line to change: a sysctl, an option of the
container runtime or service manager, a limit.

It asks the kernel, by queries, probe tables and trials on temporary rings. It prints versions but does
not use them for decisions. With RINGSIDE_BACKEND=plain in the environment io_uring is forbidden, as it is
for programs that use ringside.

Exit codes: 0 io_uring is usable, 1 it is not, 2 bad arguments.`

// newProbeCmd returns "ringside probe".
func newProbeCmd() *cobra.Command { return probeCmd(probereport.Collect) }

func probeCmd(collect func() probe.Report) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "probe",
		Short:   "Report which parts of io_uring can be used, and what to change",
		Long:    probeLong,
		Example: "  ringside probe\n  ringside probe --json | jq .reason",
		Args:    noArgs,
		RunE: promptly(func(cmd *cobra.Command, _ []string) error {
			r, out := collect(), cmd.OutOrStdout()
			if err := writeProbe(out, r, asJSON); err != nil {
				return err
			}
			if !r.Usable {
				return exitStatus(exitFailure)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func writeProbe(out io.Writer, r probe.Report, asJSON bool) error {
	if asJSON {
		return writeJSON(out, r)
	}
	return probereport.WriteText(out, r, report.Style{Color: wantColor(out)})
}
