// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
)

// newVersionCmd returns "ringside version".
func newVersionCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of ringside",
		Example: "  ringside version\n  ringside version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build := hostinfo.Build()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"ringside": build.Version, "commit": build.Commit,
					"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			commit := ""
			if build.Commit != "" {
				commit = " commit " + build.Commit
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "ringside %s%s %s %s/%s\n",
				build.Version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
