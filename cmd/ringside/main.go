// SPDX-License-Identifier: MIT

// Ringside reports which parts of io_uring work on this machine and measures it against the
// standard library.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/internal/cli"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ignoreFileSizeSignal()
	os.Exit(run(untilSignal(), os.Args[1:], os.Stdout, os.Stderr))
}

// untilSignal returns a context that ends with the first signal, which requests an orderly
// shutdown. The second signal has its default effect. A SIGHUP that is ignored stays ignored: nohup
// has started the program.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		<-signals
		signal.Stop(signals)
		cancel()
	}()
	return ctx
}

// run executes the command line and returns the exit code. Errors go to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := cli.NewOutput(stdout)
	root := newRootCmd(out, stderr)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var status exitStatus
	if err == nil || errors.As(err, &status) { // another error is printed instead
		err = cmp.Or(out.Err(), err)
	}
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		said := strings.TrimSuffix(": "+err.Error(), ": "+context.Canceled.Error())
		fmt.Fprintf(stderr, "ringside: interrupted%s\n", strings.ReplaceAll(said, ": "+context.Canceled.Error(), ""))
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "ringside: %v\nRun '%s --help' for usage.\n", err, cmd.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(stderr, "ringside: %v\n", err)
	return exitFailure
}

// exitStatus is returned by a command that has already printed its error.
type exitStatus int

// Error returns the code; only tests use it.
func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// usageError is an error in the arguments.
type usageError struct{ err error }

// Error returns the message of the cause.
func (e usageError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e usageError) Unwrap() error { return e.err }

// usagef returns an error that ends the program with the exit code for wrong arguments.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// newRootCmd assembles the command line. Each subcommand is one file with one constructor.
func newRootCmd(stdout, stderr io.Writer) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "ringside",
		Short: "What io_uring does for Go programs on this machine",
		Long: "ringside measures what io_uring gains for Go programs on this machine.\n\n" +
			"Exit codes: 0 success, 1 failure, 2 bad arguments, 130 interrupted.",
		Example: "  ringside probe                        # which features can be used, and what to change\n" +
			"  ringside bench                        # compare ringside with package os, package net and others\n" +
			"  ringside bench --html report.html     # the same as a page with figures\n" +
			"  ringside compare old.json new.json    # changes after an upgrade",
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if version {
				return writeVersion(stdout)
			}
			return showHelp(cmd, args)
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print the version, as 'ringside version' does")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetHelpFunc(writeHelp(root.HelpFunc()))
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newBackupCmd(), newBuildCmd(), newTestCmd(), newRunCmd(), newOverlayCmd(), newTryCmd(), newBenchCmd(), newCompareCmd(), newLogCmd(), newManCmd(), newProbeCmd(), newReportCmd(), newTopCmd(), newVersionCmd(), newBenchWorkerCmd(), newEchoServerCmd(), newEchoLoadCmd())
	root.SetHelpCommand(newHelpCmd())
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" { // By default it succeeds for a shell that it does not know.
			cmd.Args, cmd.RunE = noArgs, showHelp
		}
	}
	completeRest(root)
	keepCommas(root)
	return root
}

// writeHelp returns a help function that writes the text of another one at once. The one of cobra would
// print an error of a write, which run does.
func writeHelp(help func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, args []string) {
		var text bytes.Buffer
		out := cmd.OutOrStdout()
		cmd.SetOut(&text)
		defer cmd.SetOut(out)
		help(cmd, args)
		_, _ = out.Write(text.Bytes())
	}
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
				return usagef("no help for %q: there is no such command", strings.Join(args, " "))
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

// flagError adds the values that a flag accepts, or the subcommands that have the flag.
func flagError(cmd *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		_, usage := pflag.UnquoteUsage(missing.GetFlag())
		return usagef("%w: %s", err, usage)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want := wanted[bad.GetFlag().Value.Type()]; want != "" {
			return usagef("--%s %q: must be %s", bad.GetFlag().Name, bad.GetValue(), want)
		}
		switch bad.GetFlag().Value.Type() {
		case "size", "sizes":
			return usagef("--%s %w", bad.GetFlag().Name, bad.Unwrap())
		case "directory": // it names the flag
			return usageError{bad.Unwrap()}
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

// wanted describes the values of flag types whose own errors name functions of Go.
var wanted = map[string]string{
	"int":      "a number",
	"uint64":   "a number that is not negative",
	"intSlice": "a number, or several separated by commas",
	"duration": "a time such as 500ms, 10s or 2m",
	"bool":     "true or false",
}

// noArgs rejects arguments and suggests commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return usagef("%s takes no arguments, got %q: leave it out", shortPath(cmd), args[0])
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usagef("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
}

// takes returns a check of the number of arguments. what names them in words, and remedy is what
// the user should do otherwise.
func takes(n int, what, remedy string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		got := "none"
		if len(args) > 0 {
			got = strings.Trim(fmt.Sprintf("%q", args), "[]")
		}
		return usagef("%s takes %s, got %s: %s", shortPath(cmd), what, got, remedy)
	}
}

// shortPath returns the names of a command without that of the program, which precedes each error.
func shortPath(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

func writeVersion(w io.Writer) error {
	_, err := io.WriteString(w, cli.Own().Line("ringside"))
	return err
}

// newVersionCmd returns "ringside version".
func newVersionCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of ringside",
		Example: "  ringside version\n  ringside version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !asJSON {
				return writeVersion(cmd.OutOrStdout())
			}
			source := cli.Own()
			return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
				"ringside": source.Version, "commit": source.Commit,
				"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
