// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

// promptly has a command that leaves nothing behind end with its context: reading a named
// pipe or writing to a reader that does not read would go on after a signal.
func promptly(run func(cmd *cobra.Command, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		done := make(chan error, 1)
		go func() { done <- run(cmd, args) }()
		select {
		case err := <-done:
			return err
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		}
	}
}

// readResultsUntil is readResults for commands that have more to do: it waits no longer than
// the context lasts.
func readResultsUntil(ctx context.Context, path string) (*report.Document, error) {
	type answer struct {
		d   *report.Document
		err error
	}
	done := make(chan answer, 1)
	go func() {
		d, err := readResults(path)
		done <- answer{d, err}
	}()
	select {
	case a := <-done:
		return a.d, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
