// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/probereport"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/syncprobe"
	"github.com/ringside-io/ringside/internal/probe"
)

const probeLong = `probe reports which parts of io_uring this process can use, and which backend each package of ringside
would choose and why. For a missing feature it prints the line to change: a sysctl, an option of the
container runtime or service manager, a limit.

It asks the kernel, by queries, probe tables and trials on temporary rings. It prints versions but does
not use them for decisions. With RINGSIDE_BACKEND=plain in the environment io_uring is forbidden, as it is
for programs that use ringside.

--sync DIR measures the cost of a small durable write in that directory: by write and fdatasync, by
RWF_DSYNC, by both through a ring, and by one syncfs for several files. It writes a few MiB to files
without a name, which disappear at the end, and takes about a tenth of a second.

Exit codes: 0 io_uring is usable, 1 it is not, 2 bad arguments.`

// newProbeCmd returns "ringside probe".
func newProbeCmd() *cobra.Command { return probeCmd(probereport.Collect) }

func probeCmd(collect func() probe.Report) *cobra.Command {
	var asJSON bool
	var syncDir string
	cmd := &cobra.Command{
		Use:     "probe",
		Short:   "Report which parts of io_uring can be used, and what to change",
		Long:    probeLong,
		Example: "  ringside probe\n  ringside probe --json | jq .reason\n  ringside probe --sync /var/lib/app",
		Args:    noArgs,
		RunE: promptly(func(cmd *cobra.Command, _ []string) error {
			if err := wantDirectory("--sync", syncDir); err != nil {
				return err
			}
			r, out := collect(), cmd.OutOrStdout()
			syncs, err := measureSyncs(cmd.Context(), syncDir)
			if err != nil {
				return err
			}
			if err := writeProbe(out, r, syncs, asJSON); err != nil {
				return err
			}
			if !r.Usable {
				return exitStatus(exitFailure)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&syncDir, "sync", "", "measure syncs in this `directory`")
	return cmd
}

// measureSyncs returns nil if --sync was not given.
func measureSyncs(ctx context.Context, dir string) (*syncprobe.Report, error) {
	if dir == "" {
		return nil, nil
	}
	r, err := syncprobe.Measure(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("--sync %s: %w", dir, err)
	}
	return &r, nil
}

func writeProbe(out io.Writer, r probe.Report, syncs *syncprobe.Report, asJSON bool) error {
	if asJSON && syncs != nil {
		return writeJSON(out, struct {
			probe.Report
			Sync *syncprobe.Report `json:"sync"`
		}{r, syncs})
	}
	if asJSON {
		return writeJSON(out, r)
	}
	if err := probereport.WriteText(out, r, report.Style{Color: wantColor(out)}); err != nil || syncs == nil {
		return err
	}
	return syncs.WriteText(out)
}
