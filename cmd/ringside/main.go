// SPDX-License-Identifier: MIT

// Ringside tells what io_uring does on this machine and measures it beside the standard library.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
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

// untilSignal returns a context that the first signal ends, which asks for an orderly end. The second one
// has its usual effect, from before anybody can see the first.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		signal.Stop(signals)
		cancel()
	}()
	return ctx
}

// run executes the command line and returns the exit code. Errors go to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCmd()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var status exitStatus
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintf(stderr, "ringside: interrupted: %v\n", err)
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "ringside: %v\nRun '%s --help' for usage.\n", err, cmd.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(stderr, "ringside: %v\n", err)
	return exitFailure
}

// exitStatus is returned by a command that has said everything itself: only the code is left.
type exitStatus int

// Error tells the code, for tests.
func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// usageError is a mistake in the arguments.
type usageError struct{ err error }

// Error returns what is wrong.
func (e usageError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e usageError) Unwrap() error { return e.err }

// usagef returns an error that ends the program with the code for bad arguments.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
