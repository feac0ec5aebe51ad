// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newRootCmd assembles the command line. Each subcommand is one file with one constructor.
func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "ringside",
		Short: "What io_uring does for Go programs on this machine",
		Long: "ringside tells what io_uring does for Go programs on this machine.\n\n" +
			"Exit codes: 0 all well, 1 failure, 2 bad arguments, 130 interrupted.",
		Example: "  ringside probe                        # what can be used here, and what to change\n" +
			"  ringside bench                        # what it brings: ringside beside what you use now\n" +
			"  ringside bench --html report.html     # the same as a page with pictures\n" +
			"  ringside compare old.json new.json    # what an upgrade changed",
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          showHelp,
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newBenchCmd(), newCompareCmd(), newManCmd(), newProbeCmd(), newReportCmd(), newServeCmd(), newSoakCmd(), newVersionCmd(), newBenchWorkerCmd(), newEchoServerCmd(), newEchoLoadCmd())
	root.SetHelpCommand(newHelpCmd())
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" { // It would answer a shell that it does not know by success.
			cmd.Args, cmd.RunE = noArgs, showHelp
		}
	}
	completeRest(root)
	return root
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// newHelpCmd returns "ringside help".
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]...",
		Short: "Help about any command",
		Long:  "help shows what a command does and which flags it has, as --help after its name does.",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("no help about %q: there is no such command", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range about.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// flagError says what a flag wants, or which subcommands have one that the command has not.
func flagError(cmd *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		_, usage := pflag.UnquoteUsage(missing.GetFlag())
		return usagef("%w: %s", err, usage)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want := wanted[bad.GetFlag().Value.Type()]; want != "" {
			return usagef("--%s %q: must be %s", bad.GetFlag().Name, bad.GetValue(), want)
		}
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return usageError{err}
	}
	var have []string
	for _, sub := range cmd.Commands() {
		if sub.Flags().Lookup(unknown.GetSpecifiedName()) != nil {
			have = append(have, "'"+sub.CommandPath()+"'")
		}
	}
	if len(have) == 0 {
		return usageError{err}
	}
	return usagef("%w: it belongs to %s", err, strings.Join(have, ", "))
}

// wanted are the values of the types of flags whose own errors name functions of Go.
var wanted = map[string]string{
	"int":      "a number",
	"uint64":   "a number that is not negative",
	"intSlice": "a number, or several separated by commas",
	"duration": "a time such as 500ms, 10s or 2m",
}

// noArgs refuses arguments, naming commands that may have been meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return usagef("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usagef("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
}
