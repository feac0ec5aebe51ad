// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/suite"
)

// takesWords sets the shell completion of flags that accept these words, or lists of them.
func takesWords(cmd *cobra.Command, words suite.Words) {
	for flag, known := range words {
		complete := cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp)
		if strings.HasSuffix(cmd.Flag(flag).Value.Type(), "Slice") {
			complete = completeList(known)
		}
		must(cmd.RegisterFlagCompletionFunc(flag, complete))
	}
}

// completeList completes the words that a list separated by commas does not have yet.
func completeList(known []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		given := strings.Split(before, ",")
		var out []string
		for _, word := range known {
			if !slices.Contains(given, word) {
				out = append(out, before+word)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeRest sets the default completion for all commands: directories or files for flags that
// name one, nothing for numbers and times, and nothing for arguments of commands without arguments.
func completeRest(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, said := cmd.GetFlagCompletionFunc(f.Name); said || f.Value.Type() == "bool" {
			return
		}
		switch placeholder, _ := pflag.UnquoteUsage(f); placeholder {
		case "file":
		case "directory":
			must(cmd.MarkFlagDirname(f.Name))
		default:
			must(cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions))
		}
	})
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = completeArgs(cmd)
	}
	for _, sub := range cmd.Commands() {
		completeRest(sub)
	}
}

// completeArgs completes the arguments that a command's usage names: result files, a directory, or
// none.
func completeArgs(cmd *cobra.Command) cobra.CompletionFunc {
	names := strings.Fields(cmd.Use)[1:]
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(names) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if strings.HasSuffix(names[len(args)], ".json") {
			return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
		}
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
}

// escaped is a word that the completion script of bash escapes for the shell.
var escaped = regexp.MustCompile(`\$\((printf "%q" "[^"]+")\)|<\((printf "%q\\n" "[^"]+")\)`)

// keepCommas makes the completion script of bash write commas as they are typed: its printf escapes them.
func keepCommas(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	bash, _, err := root.Find([]string{"completion", "bash"})
	must(err)
	bash.RunE = func(cmd *cobra.Command, _ []string) error {
		plain, err := cmd.Flags().GetBool("no-descriptions")
		if err != nil {
			return err
		}
		var script bytes.Buffer
		if err := root.GenBashCompletionV2(&script, !plain); err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(escaped.ReplaceAllFunc(script.Bytes(), func(b []byte) []byte {
			return append(b[:len(b)-1:len(b)-1], ` | sed 's/\\,/,/g')`...)
		}))
		return err
	}
}

// must panics if a command was assembled wrongly.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
