// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const workerName = "bench-worker"

// newBenchWorkerCmd returns the hidden command that runs one round in a process of its own.
func newBenchWorkerCmd() *cobra.Command {
	return &cobra.Command{
		Use:    workerName,
		Short:  "Run one round: a job as JSON on standard input, its sample on standard output",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := measure.ServeWorker(cmd.Context(), measure.WorkerInput(), cmd.OutOrStdout(),
				func(ctx context.Context, job workload.Job) (measure.Sample, error) { return job.Run(ctx) })
			if err == nil || errors.Is(err, context.Canceled) {
				return err
			}
			// The parent prints this with its own prefix.
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			return exitStatus(exitFailure)
		},
	}
}
