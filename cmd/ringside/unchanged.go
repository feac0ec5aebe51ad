// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/internal/overlay"
)

const unchangedLong = `The program's source does not change, and its go.mod gets no line. The go command compiles it with an
overlay over package internal/poll or net of the standard library, which contains ringside at the version of
this command. Reads at an offset (os.File.ReadAt) then wait for the disk through io_uring. With --sockets,
TCP and Unix sockets of package net do, too.

At run time, RINGSIDE_BACKEND=off selects the standard library again, plain forbids io_uring, and io_uring
requires it. Where io_uring is not available, the program works as without ringside. RINGSIDE_LOG=FILE
appends a line to FILE with the backend in use.

The flags of ringside come first, and the others belong to the go command:

  --files     reads of files at an offset; the default
  --sockets   TCP and Unix sockets; files only together with --files`

// newGoCmd returns "ringside build" and its like, which run the go command with the overlay.
func newGoCmd(verb, short, example string) *cobra.Command {
	return &cobra.Command{
		Use:                verb + " [--files] [--sockets] [FLAGS AND ARGUMENTS OF go " + verb + "]",
		Short:              short,
		Long:               verb + " does what go " + verb + " does, for a program that uses io_uring.\n\n" + unchangedLong + "\n\nExit codes: those of the go command, 130 interrupted.",
		Example:            example,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, args, help := overlayOptions(args)
			if help {
				return cmd.Help()
			}
			run, err := goCommand(cmd.ErrOrStderr(), o, verb, args)
			if err != nil {
				return err
			}
			run.Stdin, run.Stdout, run.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
			return runChild(cmd, run)
		},
	}
}

func newBuildCmd() *cobra.Command {
	return newGoCmd("build", "Build an unchanged program that uses io_uring",
		"  ringside build ./cmd/server\n  ringside build --files --sockets -trimpath -o server ./cmd/server")
}

func newTestCmd() *cobra.Command {
	return newGoCmd("test", "Test an unchanged module with io_uring", "  ringside test ./...\n  ringside test --sockets -race -run Server ./server")
}

func newRunCmd() *cobra.Command {
	return newGoCmd("run", "Run an unchanged program with io_uring", "  ringside run . --addr :8080")
}

// newOverlayCmd returns "ringside overlay".
func newOverlayCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "overlay [--files] [--sockets] [PACKAGES]",
		Short: "Print the path of the overlay, for go build -overlay",
		Long: "overlay prints the path of the overlay, for other commands that call the go command. With packages, it\n" +
			"is also linked in programs that import only the few packages of the standard library that ringside needs.\n\n" + unchangedLong +
			"\n\nExit codes: 0 printed, 1 failure.",
		Example: "  go build -overlay \"$(ringside overlay ./cmd/server)\" ./cmd/server\n" +
			"  GOFLAGS=-overlay=$(ringside overlay) make",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, args, help := overlayOptions(args)
			if help {
				return cmd.Help()
			}
			cache, tools, err := toolchain(overlay.WorkDir(args))
			if err != nil {
				return err
			}
			path, err := tools.Overlay(cache, o, args)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), path)
			return nil
		},
	}
}

// overlayOptions takes ringside's flags off the arguments.
func overlayOptions(args []string) (o overlay.Options, rest []string, help bool) {
	for ; len(args) > 0; args = args[1:] {
		switch args[0] {
		case "--files":
			o.Files = true
		case "--sockets":
			o.Sockets = true
		case "--help", "-help", "-h":
			return o, args, true
		default:
			o.Files = o.Files || !o.Sockets
			return o, args, false
		}
	}
	o.Files = o.Files || !o.Sockets
	return o, args, false
}

// toolchain returns the cache directory and the toolchain for a directory.
func toolchain(dir string) (string, *overlay.Toolchain, error) {
	cache, err := overlay.CacheDir()
	if err != nil {
		return "", nil, err
	}
	tools, err := overlay.Select(dir, cache)
	return cache, tools, err
}

// goCommand returns the go command with the overlay.
func goCommand(stderr io.Writer, o overlay.Options, verb string, args []string) (*exec.Cmd, error) {
	cache, tools, err := toolchain(overlay.WorkDir(args))
	if err != nil {
		return nil, err
	}
	if tools.GOOS != "linux" {
		fmt.Fprintf(stderr, "ringside: %s has no io_uring: "+
			"the overlay is empty, and the program uses the standard library\n", tools.GOOS)
	}
	return tools.Command(cache, o, verb, args)
}

// runChild runs a go command, and returns its exit code, or the error of the context.
func runChild(cmd *cobra.Command, run *exec.Cmd) error {
	err := interruptible(cmd.Context(), run)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 0 {
		return exitStatus(exit.ExitCode())
	}
	return err
}

// interruptible runs a go command. When the context ends, the command and its children get an interrupt: the go command
// passes none on, and waits for the program that it runs. Where they read a terminal, they stay in its process group,
// which gets the interrupts of Ctrl-C, and only the go command gets one more.
func interruptible(ctx context.Context, run *exec.Cmd) error {
	signal := func(sig syscall.Signal) error { return run.Process.Signal(sig) }
	if run.Stdin == nil || !term.IsTerminal(int(os.Stdin.Fd())) {
		signal = measure.Group(run)
	}
	if err := run.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = signal(syscall.SIGINT) })
	defer stop()
	if err := run.Wait(); ctx.Err() == nil {
		return err
	}
	return ctx.Err()
}
