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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

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
95 of 100 cases. A program beside itself shows no difference in 19 of 20 comparisons. More starts narrow the
intervals (--starts).

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
			"  ringside try ./cmd/search -- /var/lib/data",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("try takes a package, got none: name the main package to build")
			}
			if t.starts < minTries {
				return usagef("--starts %d: must be at least %d, because fewer cannot show a difference", t.starts, minTries)
			}
			t.pkg, t.args = args[0], args[1:]
			t.options.Files = t.options.Files || !t.options.Sockets
			return t.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&t.options.Files, "files", false, "reads of files at an offset; the default")
	flags.BoolVar(&t.options.Sockets, "sockets", false, "TCP and Unix sockets; files only together with --files")
	flags.StringVar(&t.load, "load", "", "`COMMAND` of the shell that loads the running program")
	flags.StringVar(&t.ready, "ready", "", "`HOST:PORT` that accepts connections when the program is ready (default: the first loopback address in --load)")
	flags.IntVar(&t.starts, "starts", 8, "how often each build is started")
	return cmd
}

// minTries is the least number of starts for an answer: bench's judge has no interval for fewer.
const minTries = 4

// trial compares two builds of a program.
type trial struct {
	options          overlay.Options
	pkg, load, ready string
	args             []string
	starts           int
}

// builds are the names of the two builds.
var builds = [2]string{"go build", "ringside build"}

func (t *trial) run(ctx context.Context, stdout, stderr io.Writer) error {
	dir, err := os.MkdirTemp("", "ringside-try")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	exes := [2]string{filepath.Join(dir, "go"), filepath.Join(dir, "ringside")}
	for i, exe := range exes {
		fmt.Fprintf(stderr, "%s %s\n", builds[i], t.pkg)
		build := exec.Command("go", "build", "-o", exe, t.pkg)
		if i == 1 {
			if build, err = goCommand(stderr, t.options, "build", []string{"-o", exe, t.pkg}); err != nil {
				return err
			}
		}
		build.Stderr = stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("%s %s: %w", builds[i], t.pkg, err)
		}
	}
	if t.load != "" && t.ready == "" {
		t.ready = loopback.FindString(t.load)
	}
	samples, err := t.measure(ctx, exes, stderr)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, answer(samples))
	return err
}

// loopback matches an address that a load names.
var loopback = regexp.MustCompile(`(localhost|127\.0\.0\.1|\[::1\]):\d+`)

// measure starts the builds in pairs, whose order is random.
func (t *trial) measure(ctx context.Context, exes [2]string, stderr io.Writer) (samples [2][]tried, err error) {
	for pair := range t.starts {
		first := rand.IntN(2)
		for _, i := range [2]int{first, 1 - first} {
			s, err := t.once(ctx, exes[i])
			if err != nil {
				return samples, fmt.Errorf("%s, start %d: %w", builds[i], pair+1, err)
			}
			samples[i] = append(samples[i], s)
			fmt.Fprintf(stderr, "start %d of %d: %-14s %s\n", pair+1, t.starts, builds[i], listed(s))
		}
	}
	return samples, nil
}

// tried is what a start of a build shows: metrics by name.
type tried = map[string]float64

const (
	tryRate, tryTime, tryP99 = "rate", "time", "p99"
	tryCPU                   = "CPU"
)

// listed lists the metrics.
func listed(s tried) string {
	var words []string
	for _, m := range [][2]string{{tryRate, "%.6g/s"}, {tryTime, "%.3gs"}, {tryCPU, "CPU %.3gs"}, {tryP99, "p99 %.3gms"}} {
		if v, ok := s[m[0]]; ok {
			words = append(words, fmt.Sprintf(m[1], v))
		}
	}
	return strings.Join(words, ", ")
}

// once starts a build, loads it, and stops it.
func (t *trial) once(ctx context.Context, exe string) (tried, error) {
	var said bytes.Buffer
	server := exec.CommandContext(ctx, exe, t.args...)
	server.Stdout, server.Stderr = &said, &said
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
	load := exec.CommandContext(ctx, "sh", "-c", t.load)
	start := time.Now()
	out, err := load.CombinedOutput()
	took := time.Since(start)
	if err != nil {
		return nil, fmt.Errorf("the load: %w\n%s", cmp.Or(ctx.Err(), err), tailOf(string(out)))
	}
	after, err := procstat.CPU(server.Process.Pid)
	if err != nil {
		return nil, errors.New("the program ended under the load")
	}
	return metrics(string(out), took, after-before), nil
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

// rates and tails match what load generators print.
var (
	rates = regexp.MustCompile(`(?i)(?:requests/sec|requests per second|throughput)\D*?([\d.]+)|([\d.]+)\s*(?:requests|req|reqs|ops|op|reads|writes|queries|transactions|messages|msgs|files)\s*(?:/|per )\s*s`)
	tails = regexp.MustCompile(`(?i)\b(?:p99|99(?:\.0*)?%)(?:ile)?[^\d\n]*([\d.]+)\s*(us|µs|ms|s|ns)?\b`)
)

// metrics reads the output of the load.
func metrics(out string, took, cpu time.Duration) tried {
	s := tried{tryTime: took.Seconds()}
	ops := 1.0
	if m := rates.FindStringSubmatch(out); m != nil {
		if rate, err := strconv.ParseFloat(cmp.Or(m[1], m[2]), 64); err == nil && rate > 0 {
			delete(s, tryTime) // of a given time, or of a given number of operations
			s[tryRate], ops = rate, rate*took.Seconds()
		}
	}
	if cpu > 0 {
		s[tryCPU] = cpu.Seconds() / ops
	}
	if m := tails.FindStringSubmatch(out); m != nil {
		unit := map[string]float64{"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1, "s": 1e3, "": 1}[strings.ToLower(m[2])]
		if v, err := strconv.ParseFloat(m[1], 64); err == nil && v > 0 {
			s[tryP99] = v * unit
		}
	}
	return s
}

// answer compares the metrics with the judge of bench.
func answer(samples [2][]tried) string {
	found := report.Judge(samples[1], samples[0], tryRate, tryTime, tryCPU, tryP99)
	var lines, gains, losses []string
	wide := ""
	for _, m := range []struct {
		name, words string
		more        bool // is better
	}{{tryRate, "rate", true}, {tryTime, "time", false}, {tryCPU, "CPU time", false}, {tryP99, "p99 of latency", false}} {
		d, ok := found[m.name]
		if !ok {
			continue // not in each start
		}
		lines = append(lines, fmt.Sprintf("  %-15s %s of go build's", m.words, d.Interval))
		words := fmt.Sprintf("%s %.2fx", m.words, d.Ratio)
		if m.name != tryP99 && (d.Low < 0.9 || d.High > 1.1) {
			wide = " The intervals are wide: set a higher --starts, or use a quieter machine."
		}
		switch better := d.Ratio > 1 == m.more; {
		case !d.Counts:
		case better:
			gains = append(gains, words)
		default:
			losses = append(losses, words)
		}
	}
	verdict := "No gain here: these starts show no difference." + wide
	switch {
	case len(gains) > 0 && len(losses) > 0:
		verdict = "It depends: better in " + strings.Join(gains, ", ") + "; worse in " + strings.Join(losses, ", ") + "."
	case len(gains) > 0:
		verdict = "Gain: " + strings.Join(gains, ", ") + "."
	case len(losses) > 0:
		verdict = "Loss: " + strings.Join(losses, ", ") + "."
	}
	return verdict + "\n" + strings.Join(lines, "\n") + "\n"
}
