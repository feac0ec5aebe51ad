// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// newManCmd returns "ringside man".
func newManCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write manual pages to a directory",
		Long: "man writes a manual page for each command to a directory, which is made if it is missing. For\n" +
			"'man ringside' to find them it must be a directory man1 below one of MANPATH.",
		Example: "  ringside man ~/.local/share/man/man1 && man ringside-bench",
		Args:    takes(1, "one directory", "name the one to write to"),
		RunE: func(cmd *cobra.Command, args []string) error {
			unusable := func(err error) error {
				return fmt.Errorf("man %s: %w: name a directory that you may write to", args[0], err)
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return unusable(err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			describe(root)
			if err := writePages(root, args[0]); err != nil {
				return unusable(err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "ringside: manual pages are in %s\n", args[0])
			return nil
		},
	}
}

// writePages writes the pages of a command and of those below it.
func writePages(cmd *cobra.Command, dir string) error {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			if err := writePages(c, dir); err != nil {
				return err
			}
		}
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	var page bytes.Buffer
	header := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Source: "ringside", Manual: "ringside"}
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".1"), asTyped(cmd, page.Bytes()), 0o644) //nolint:gosec // every user reads it
}

// manFlag is a flag with its default in a manual page.
var manFlag = regexp.MustCompile(`(?m)\\fB--([a-z-]+)\\fP(\[=.*?\]|=.*)$`)

// asTyped changes the flags of a page to what a user types: --json file instead of --json="".
func asTyped(cmd *cobra.Command, page []byte) []byte {
	return manFlag.ReplaceAllFunc(page, func(b []byte) []byte {
		name := manFlag.FindSubmatch(b)[1]
		typed := fmt.Appendf(nil, `\fB--%s\fP`, name)
		if f := cmd.Flag(string(name)); f != nil {
			if placeholder, _ := pflag.UnquoteUsage(f); placeholder != "" {
				typed = fmt.Appendf(typed, ` \fI%s\fP`, placeholder)
			}
		}
		return typed
	})
}

// manItem is a line of a command's description that begins an item of a list.
var manItem = regexp.MustCompile(`^  (\S+(?: \S+)*)  +(\S.*)$`)

// describe changes the lists in the descriptions of a command and of those below it to
// definition lists, whose lines a manual page breaks at the width of the terminal.
func describe(cmd *cobra.Command) {
	var text strings.Builder
	list := false
	for line := range strings.Lines(cmd.Long) {
		item := manItem.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		switch {
		case item != nil:
			if list {
				text.WriteString("\n")
			}
			fmt.Fprintf(&text, "%s\n: %s\n", item[1], item[2])
			list = true
		case list && strings.HasPrefix(line, "    "):
			text.WriteString(strings.TrimLeft(line, " "))
		default:
			list = false
			text.WriteString(line)
		}
	}
	cmd.Long = text.String()
	for _, c := range cmd.Commands() {
		describe(c)
	}
}
