// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/procstat"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/internal/overlay"
)

const tryLong = `try builds an unchanged program twice, with go build and with ringside build, and compares the two. They are
started in turn, in random order, and loaded by the same command. The answer has the ratio of the rates, of
the CPU time of the program, and of the 99th percentile of the latency, as far as the command prints them:

  rate  wrk, ab, or a number before requests/s, ops/s, reads/s and the like; otherwise the time of the command
  p99   wrk --latency, ab, or a time after p99

The judge is that of bench: each start is one value, and the ratio has an interval that holds the true one in
95 of 100 cases. A program beside itself shows no difference in 19 of 20 comparisons (--null tries that). More
starts narrow the intervals (--starts). The answer names the packages of ringside that the program used, with
their backend, or that it used none. --html writes it as a page, and --json as a result file for ringside report
and compare.

Without --load, the program is its own load: it runs to its end, and prints its rate if it has one.`

// newTryCmd returns "ringside try".
func newTryCmd() *cobra.Command {
	var t trial
	cmd := &cobra.Command{
		Use:   "try PACKAGE [-- ARGUMENTS OF THE PROGRAM]",
		Short: "Compare an unchanged program with and without io_uring, under your load",
		Long:  tryLong + "\n\nExit codes: 0 compared, 1 failure, 2 bad arguments, 130 interrupted.",
		Example: "  ringside try ./cmd/server --load 'wrk -c 64 -d 5 --latency http://127.0.0.1:8080/'\n" +
			"  ringside try --sockets ./cmd/server --load ./load.sh --ready 127.0.0.1:8080 -- -config test.yaml\n" +
			"  ringside try ./cmd/search --before 'echo 1 >/proc/sys/vm/drop_caches' -- /var/lib/data",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("try takes a package, got none: name the main package to build")
			}
			if err := differentFiles(map[string]string{"--json": t.files.json, "--html": t.files.html}); err != nil {
				return err
			}
			if t.starts < minTries {
				return usagef("--starts %d: must be at least %d, because fewer cannot show a difference", t.starts, minTries)
			}
			t.pkg, t.args = args[0], args[1:]
			t.options.Files = t.options.Files || !t.options.Sockets
			return t.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&t.options.Files, "files", false, "reads of files at an offset; the default")
	flags.BoolVar(&t.options.Sockets, "sockets", false, "TCP and Unix sockets; files only together with --files")
	flags.StringVar(&t.load, "load", "", "`COMMAND` of the shell that loads the running program")
	flags.StringVar(&t.ready, "ready", "", "`HOST:PORT` that accepts connections when the program is ready (default: the first loopback address in --load)")
	flags.StringVar(&t.before, "before", "", "`COMMAND` of the shell that runs before each start, such as one that empties the page cache")
	flags.IntVar(&t.starts, "starts", 8, "how often each build is started")
	flags.BoolVar(&t.null, "null", false, "compare ringside build with itself, to see what the method itself differs by")
	flags.StringVar(&t.files.json, "json", "", "write the result as JSON to this `file`, - for standard output")
	flags.StringVar(&t.files.html, "html", "", "write a page with the answer to this `file`, - for standard output")
	return cmd
}

// minTries is the least number of starts for an answer: bench's judge has no interval for fewer.
const minTries = 4

// trial compares two builds of a program.
type trial struct {
	options                  overlay.Options
	pkg, load, ready, before string
	args                     []string
	starts                   int
	null                     bool
	files                    benchFlags // of which it has --json and --html
}

// builds are the names of the two builds.
var builds = [2]string{"go build", "ringside build"}

func (t *trial) run(cmd *cobra.Command) (err error) {
	if err := errors.Join(installed(cmd.Context(), "--load", t.load), installed(cmd.Context(), "--before", t.before)); err != nil {
		return err
	}
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	outputs, err := openOutputs(stdout, &t.files)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outputs.close()) }()
	dir, err := os.MkdirTemp("", "ringside-try")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	exes, err := t.build(cmd.Context(), dir, stderr)
	if err != nil {
		return err
	}
	if t.load != "" && t.ready == "" {
		t.ready = loopback.FindString(t.load)
	}
	spoilers := hostinfo.Spoilers()
	samples, err := t.measure(cmd.Context(), exes, stderr)
	if err != nil {
		return err
	}
	result := t.result(samples)
	result.Notes = append(result.Notes, usedNote(exes[1]+logSuffix, t.options))
	if result.Claims()[0].Kind == report.Open {
		result.Notes = append(result.Notes, spoilers...)
	}
	if err := outputs.write(result); err != nil || t.files.quiet() {
		return err
	}
	_, err = io.WriteString(stdout, answer(result))
	return err
}

// plainWord matches the program at the start of a command of the shell.
var plainWord = regexp.MustCompile(`^[\w./-]+( |$)`)

// installed returns an error if the shell does not find the program that a command names: the builds take minutes.
func installed(ctx context.Context, flag, command string) error {
	word := strings.TrimSpace(plainWord.FindString(command))
	if word == "" || shell(ctx, "command -v "+word).Run() == nil {
		return nil
	}
	return fmt.Errorf("%s: %s is not found: install it", flag, word)
}

// build returns the programs of go build and of ringside build.
func (t *trial) build(ctx context.Context, dir string, stderr io.Writer) (exes [2]string, err error) {
	exes = [2]string{filepath.Join(dir, "go"), filepath.Join(dir, "ringside")}
	for i, exe := range exes {
		if t.null && i == 0 {
			continue
		}
		fmt.Fprintf(stderr, "%s %s\n", builds[i], t.pkg)
		build := exec.Command("go", "build", "-o", exe, t.pkg)
		if i == 1 {
			if build, err = goCommand(stderr, t.options, "build", []string{"-o", exe, t.pkg}); err != nil {
				return exes, err
			}
		}
		build.Stderr = stderr
		if err := interruptible(ctx, build); err != nil {
			return exes, fmt.Errorf("%s %s: %w", builds[i], t.pkg, err)
		}
	}
	if t.null {
		exes[0] = exes[1]
	}
	return exes, nil
}

// loopback matches an address that a load names.
var loopback = regexp.MustCompile(`(localhost|127\.0\.0\.1|\[::1\]):\d+`)

// measure starts the builds in pairs, whose order is random.
func (t *trial) measure(ctx context.Context, exes [2]string, stderr io.Writer) (samples [2][]report.Sample, err error) {
	for pair := range t.starts {
		first := rand.IntN(2)
		for _, i := range [2]int{first, 1 - first} {
			m, err := t.once(ctx, exes[i])
			if err != nil { // after a signal any of the processes may be the first to end
				return samples, fmt.Errorf("%s, start %d: %w", builds[i], pair+1, cmp.Or(ctx.Err(), err))
			}
			samples[i] = append(samples[i], report.Sample{Iterations: 1, Metrics: m, Start: pair})
			fmt.Fprintf(stderr, "start %d of %d: %-14s %s\n", pair+1, t.starts, builds[i], listed(m))
		}
	}
	return samples, nil
}

// once starts a build, loads it, and stops it.
func (t *trial) once(ctx context.Context, exe string) (map[string]float64, error) {
	if t.before != "" {
		if out, err := shell(ctx, t.before).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("--before: %w\n%s", err, tailOf(string(out)))
		}
	}
	var said bytes.Buffer
	server := exec.CommandContext(ctx, exe, t.args...)
	measure.Isolate(server)
	server.Stdout, server.Stderr = &said, &said
	server.Env = append(os.Environ(), "RINGSIDE_LOG="+exe+logSuffix)
	if t.load == "" {
		start := time.Now()
		if err := server.Run(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, tailOf(said.String()))
		}
		return metrics(said.String(), time.Since(start), server.ProcessState.UserTime()+server.ProcessState.SystemTime()), nil
	}
	if t.ready != "" {
		if c, err := net.Dial("tcp", t.ready); err == nil {
			c.Close()
			return nil, fmt.Errorf("another process listens on %s: end it", t.ready)
		}
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	defer func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = server.Process.Kill()
			<-ended
		}
	}()
	if err := t.waitReady(ctx, ended); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, tailOf(said.String()))
	}
	before, _ := procstat.CPU(server.Process.Pid)
	start := time.Now()
	out, err := shell(ctx, t.load).CombinedOutput()
	took := time.Since(start)
	if err != nil {
		hint := ""
		if t.ready == "" { // the load began with the program
			hint = "; it names no address to wait for: set --ready HOST:PORT"
		}
		return nil, fmt.Errorf("the load: %w%s\n%s", err, hint, tailOf(string(out)))
	}
	after, err := procstat.CPU(server.Process.Pid)
	if err != nil {
		return nil, errors.New("the program ended under the load")
	}
	return metrics(string(out), took, after-before), nil
}

// shell returns a command of the shell, which ends with its children when the context ends.
func shell(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	measure.Isolate(cmd)
	return cmd
}

// waitReady waits until the program accepts connections.
func (t *trial) waitReady(ctx context.Context, ended chan error) error {
	for begin := time.Now(); t.ready != "" && time.Since(begin) < time.Minute; {
		if c, err := net.Dial("tcp", t.ready); err == nil {
			return c.Close()
		}
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("the program ended before it accepted connections on %s: %v", t.ready, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if t.ready != "" {
		return fmt.Errorf("the program did not accept connections on %s for a minute: set --ready", t.ready)
	}
	return nil
}

func tailOf(s string) string { return s[max(0, len(s)-1000):] }
