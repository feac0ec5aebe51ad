// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/suite"
)

// takesWords has the shell complete flags that take these words, or lists of them.
func takesWords(cmd *cobra.Command, words suite.Words) {
	for flag, known := range words {
		complete := cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp)
		if strings.HasSuffix(cmd.Flag(flag).Value.Type(), "Slice") {
			complete = completeList(known)
		}
		must(cmd.RegisterFlagCompletionFunc(flag, complete))
	}
}

// completeList offers the words that a list separated by commas does not have yet.
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

// completeRest settles for all commands what the shell offers where nothing was said: directories
// for a flag that names one, files for one that names a file, nothing for numbers and times, and
// nothing for arguments of commands that take none.
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

// completeArgs offers the arguments that the usage of a command names: result files, a directory, or none.
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

// must ends a program that was put together wrongly.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
