// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"

	"github.com/ringside-io/ringside/internal/testing/vm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opt, err := parseOptions(args, stderr)
	if err != nil {
		return 2
	}
	l := &lane{opt: opt, out: stdout}
	if err := l.run(ctx); err != nil {
		fmt.Fprintln(stderr, "lane:", err)
		return 1
	}
	if l.failed > 0 {
		return 1
	}
	return 0
}

// lane runs all kernels and counts.
type lane struct {
	opt            options
	out            io.Writer
	passed, failed int
}

func (l *lane) run(ctx context.Context) error {
	ci, _ := strconv.ParseBool(os.Getenv("CI"))
	tools, err := vm.FindTools(ctx, l.opt.arch, ci)
	if err != nil {
		return l.missing(err, ci, l.opt.kernels...)
	}
	var kernels []vm.Kernel
	for _, version := range l.opt.kernels {
		k, err := vm.FetchKernel(ctx, l.opt.arch, version)
		if err == nil {
			kernels = append(kernels, k)
		} else if err := l.missing(err, ci, version); err != nil {
			return err
		}
	}
	if len(kernels) == 0 {
		return nil
	}
	if !l.opt.scratch {
		tools.Mkfs = ""
	}
	cargo, err := build(ctx, l.opt)
	if err != nil {
		return err
	}
	defer cargo.remove()
	died := l.each(kernels, func(one *lane, k vm.Kernel) error {
		if ctx.Err() != nil {
			return nil // the running ones have reported it
		}
		return one.boot(ctx, tools, k, cargo)
	})
	if l.opt.main == "" && ctx.Err() == nil {
		fmt.Fprintf(l.out, "%d passed, %d failed\n", l.passed, l.failed)
	}
	return died
}

// missing handles a requirement that the machine lacks: it is an error in CI;
// elsewhere the lane is skipped by name.
func (l *lane) missing(err error, ci bool, versions ...string) error {
	var unavailable *vm.UnavailableError
	if ci || !errors.As(err, &unavailable) {
		return fmt.Errorf("kernel lane: %w", err)
	}
	for _, v := range versions {
		fmt.Fprintf(l.out, "SKIP kernel lane %s: %v\n", l.opt.machine(v), err)
	}
	return nil
}
