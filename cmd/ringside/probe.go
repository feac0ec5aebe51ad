// SPDX-License-Identifier: MIT

package main

import (
	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/probereport"
	"github.com/ringside-io/ringside/features"
)

const probeLong = `probe tells what of io_uring this process can use, which backend each package of ringside would
choose and why, and where something is missing, the line to change: a sysctl, an option of the
container runtime or service manager, a limit.

It asks the kernel itself, by queries, tables and trials on throw-away rings. Versions are printed
but decide nothing. With RINGSIDE_IOURING=off in the environment everything is forbidden, as it is
to programs that use ringside.

Exit codes: 0 io_uring is usable, 1 it is not, 2 bad arguments.`

// newProbeCmd returns "ringside probe".
func newProbeCmd() *cobra.Command { return probeCmd(probereport.Collect) }

func probeCmd(collect func() features.Report) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "probe",
		Short:   "Tell what of io_uring can be used here, and what to change",
		Long:    probeLong,
		Example: "  ringside probe\n  ringside probe --json | jq .reason",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, out := collect(), cmd.OutOrStdout()
			write := func() error {
				return probereport.WriteText(out, r, probereport.Style{Color: wantColor(out)})
			}
			if asJSON {
				write = func() error { return probereport.WriteJSON(out, r) }
			}
			if err := write(); err != nil {
				return err
			}
			if !r.Usable {
				return exitStatus(exitFailure)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
