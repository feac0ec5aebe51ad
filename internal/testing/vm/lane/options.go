// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm"
)

// options are the command line.
type options struct {
	kernels []string
	arch    string
	atOnce  int
	pkgs    []string
	tools   []string
	run     string
	bench   string
	verbose bool
	timeout time.Duration
	long    bool
	accel   string
	scratch bool
	env     []string
	sysctls map[string]string
	uid     uint
	main    string
	args    []string // after the flags, for main
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	opt := options{sysctls: map[string]string{}}
	fs := flag.NewFlagSet("lane", flag.ContinueOnError)
	fs.SetOutput(stderr)
	list := func(dst *[]string) func(string) error {
		return func(s string) error { *dst = append(*dst, s); return nil }
	}
	fs.Func("kernel", "kernel `version`, such as 6.1; may be repeated", list(&opt.kernels))
	fs.StringVar(&opt.arch, "arch", "amd64", "`architecture` of the machine: "+strings.Join(vm.Archs(), " or "))
	fs.IntVar(&opt.atOnce, "at-once", runtime.NumCPU(), "how many kernels run at the same time")
	fs.Func("pkg", "package `pattern` to test; may be repeated (default: all of the core module that the kernel concerns)", list(&opt.pkgs))
	fs.Func("tool", "`program` of the host to copy into the machine with its libraries, for tests that use it if it is there; may be repeated", list(&opt.tools))
	fs.StringVar(&opt.run, "run", "", "run only the tests that match this `regexp`")
	fs.StringVar(&opt.bench, "bench", "", "run the benchmarks that match this `regexp`, and print the output")
	fs.BoolVar(&opt.verbose, "v", false, "print the output of passing tests, too, as it comes")
	fs.BoolVar(&opt.long, "long", false, "do not shorten the tests (emulation makes them several times slower)")
	fs.DurationVar(&opt.timeout, "timeout", 10*time.Minute, "time limit for each test binary")
	fs.StringVar(&opt.accel, "accel", "tcg", "qemu accelerator: tcg works everywhere, kvm where it works")
	fs.BoolVar(&opt.scratch, "scratch", true, "put TMPDIR on an ext4 scratch disk; false leaves it on tmpfs")
	fs.Func("env", "`KEY=value` for the environment of the tests; may be repeated", list(&opt.env))
	fs.Func("sysctl", "`key=value` to set before the tests; may be repeated", func(s string) error {
		key, value, ok := strings.Cut(s, "=")
		opt.sysctls[key] = value
		if !ok {
			return errors.New("want key=value")
		}
		return nil
	})
	fs.UintVar(&opt.uid, "uid", 0, "user and group `id` the tests run as")
	fs.StringVar(&opt.main, "main", "", "run this command `package` with the remaining arguments instead of tests")
	if err := fs.Parse(args); err != nil {
		return opt, err
	}
	opt.args = fs.Args()
	opt.verbose = opt.verbose || opt.bench != ""
	if err := opt.check(); err != nil {
		fmt.Fprintln(stderr, "lane:", err)
		return opt, err
	}
	return opt, nil
}

func (o *options) check() error {
	switch {
	case len(o.kernels) == 0:
		return errors.New("no -kernel given")
	case !slices.Contains(vm.Archs(), o.arch):
		return fmt.Errorf("-arch must be one of %s", strings.Join(vm.Archs(), ", "))
	case o.timeout <= 0:
		return errors.New("-timeout must be positive")
	case o.uid > 1<<31:
		return errors.New("-uid is too large")
	case o.main == "" && len(o.args) > 0:
		return fmt.Errorf("unexpected argument %q", o.args[0])
	case o.main != "" && (len(o.pkgs) > 0 || o.run != ""):
		return errors.New("-main excludes -pkg and -run")
	}
	return nil
}

// machine returns the name of a kernel of this architecture for the output.
func (o *options) machine(version string) string {
	if o.arch == "amd64" {
		return version
	}
	return version + " " + o.arch
}
