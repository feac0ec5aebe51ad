// SPDX-License-Identifier: MIT

// Package generator runs load generators by others, ab and wrk, and parses their output.
package generator

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// These are the names of the clients in tables and result files.
const (
	// NameAB is ab with a connection per request. NameABKeep is ab with keep-alive (ab -k).
	NameAB     = "ab"
	NameABKeep = "ab-k"
	// NameWrk is wrk with one thread.
	NameWrk = "wrk"
)

// ErrMissing is matched by the error of [Find] if a program is not installed.
var ErrMissing = errors.New("is not installed")

// packages are the programs' Debian packages.
var packages = map[string]string{NameAB: "apache2-utils", NameWrk: "wrk"}

// program returns the name of a client's program.
func program(client string) string {
	if client == NameABKeep {
		return NameAB
	}
	return client
}

// Find returns the path of a client's program.
func Find(client string) (string, error) {
	name := program(client)
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s %w (Debian: apt-get install %s)", name, ErrMissing, packages[name])
	}
	return path, nil
}

// Version returns the version of a client's program.
func Version(ctx context.Context, client, path string) (string, error) {
	option := "-v" // With -v wrk complains about a missing address.
	if program(client) == NameAB {
		option = "-V"
	}
	out, err := exec.CommandContext(ctx, path, option).CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if len(out) == 0 {
		return "", fmt.Errorf("get the version of %s: %w", client, err)
	}
	line, _, _ = strings.Cut(line, " Copyright")
	line, _, _ = strings.Cut(line, " <$")
	return strings.TrimPrefix(line, "This is "), nil
}

// Job describes requests to a server.
type Job struct {
	// Client is the name of the client, and Path its program.
	Client, Path string
	// Addr is the server's address. Connections is the number of concurrent connections. HTTP clients
	// request "/".
	Addr        string
	Connections int
	// Measure is the duration. ab and wrk accept only whole seconds, so it is rounded up. If Requests is
	// not 0, ab makes that many requests instead.
	Measure  time.Duration
	Requests int
}

// Window returns the actual duration.
func (j Job) Window() time.Duration {
	return time.Duration(math.Ceil(j.Measure.Seconds())) * time.Second
}

// Run runs the client. Failed requests are an error. When ctx ends the client is killed, and the
// error matches that of the context.
func (j Job) Run(ctx context.Context) (loadgen.Result, error) {
	if program(j.Client) == NameAB {
		return j.ab(ctx)
	}
	return j.wrk(ctx)
}

// Drive is Run with the server at addr.
func (j Job) Drive(ctx context.Context, addr string) (loadgen.Result, error) {
	j.Addr = addr
	return j.Run(ctx)
}

// run runs the program and returns its standard output.
func (j Job) run(ctx context.Context, args ...string) (string, error) {
	out, err := measure.Output(ctx, exec.CommandContext(ctx, j.Path, args...), nil)
	return string(out), err
}

// url is the URL of the requests.
func (j Job) url() string { return "http://" + j.Addr + "/" }

// ab runs ApacheBench. The percentiles on its standard output are in whole milliseconds. The file
// has microseconds.
func (j Job) ab(ctx context.Context) (res loadgen.Result, err error) {
	dir, err := os.MkdirTemp("", "ringside-ab-*")
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	table := filepath.Join(dir, "percentiles.csv")
	out, err := j.run(ctx, j.abArgs(table)...)
	if err != nil {
		return res, err
	}
	b, err := os.ReadFile(table)
	if err != nil {
		return res, fmt.Errorf("%s: %w", j.Client, err)
	}
	res, err = parseAB(out, string(b))
	if err == nil && j.Requests > 0 && res.Ops != int64(j.Requests) {
		err = fmt.Errorf("ab: %d of %d requests were answered", res.Ops, j.Requests)
	}
	return res, err
}

// abMost is more requests than a server answers in a second.
const abMost = 1_000_000

func (j Job) abArgs(table string) []string {
	args := []string{"-q", "-c", strconv.Itoa(j.Connections), "-e", table}
	if j.Requests > 0 {
		args = append(args, "-n", strconv.Itoa(j.Requests))
	} else {
		seconds := int(j.Window() / time.Second)
		args = append(args, "-r", "-t", strconv.Itoa(seconds), "-n", strconv.Itoa(abMost*seconds))
	}
	if j.Client == NameABKeep {
		args = append(args, "-k")
	}
	return append(args, j.url())
}

var (
	abComplete = regexp.MustCompile(`(?m)^Complete requests:\s+(\d+)$`)
	abFailed   = regexp.MustCompile(`(?m)^(?:Failed requests|Non-2xx responses):\s+([1-9]\d*)$`)
	abTook     = regexp.MustCompile(`(?m)^Time taken for tests:\s+([\d.]+) seconds$`)
)

// seconds returns a number of seconds as a duration.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// longest is the longest accepted latency.
const longest = 24 * time.Hour

// parseAB parses ab's output and its table of percentiles.
func parseAB(out, table string) (res loadgen.Result, err error) {
	if m := abFailed.FindString(out); m != "" {
		return res, fmt.Errorf("ab: %s", m)
	}
	complete, took := abComplete.FindStringSubmatch(out), abTook.FindStringSubmatch(out)
	if complete == nil || took == nil {
		return res, errors.New("ab: unreadable answer")
	}
	res.By = NameAB
	res.Ops, _ = strconv.ParseInt(complete[1], 10, 64)
	elapsed, _ := strconv.ParseFloat(took[1], 64)
	res.Elapsed = seconds(elapsed)
	if res.Ops <= 0 || res.Elapsed <= 0 {
		return res, errors.New("ab: no request was answered")
	}
	lines := csv.NewReader(strings.NewReader(table))
	lines.FieldsPerRecord = 2
	rows, err := lines.ReadAll()
	if err != nil {
		return res, fmt.Errorf("ab: percentiles: %w", err)
	}
	for _, row := range rows {
		millis, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			continue // the heading
		}
		if !(millis >= 0 && millis <= longest.Seconds()*1000) { // also NaN
			return res, fmt.Errorf("ab: percentiles: %q", row[1])
		}
		took := time.Duration(millis * float64(time.Millisecond))
		switch row[0] {
		case "50":
			res.P50 = took
		case "99":
			res.P99 = took
		case "100":
			res.Max = took
		}
	}
	return res, nil
}

func (j Job) wrk(ctx context.Context) (loadgen.Result, error) {
	out, err := j.run(ctx, "-t", "1", "-c", strconv.Itoa(j.Connections), "-d", j.Window().String(), "--latency", j.url())
	if err != nil {
		return loadgen.Result{}, err
	}
	return parseWrk(out)
}

var (
	wrkTotal  = regexp.MustCompile(`(?m)^\s*(\d+) requests in (\d+(?:\.\d+)?(?:us|ms|s|m))\b`)
	wrkFailed = regexp.MustCompile(`(?m)^\s*(Non-2xx or 3xx responses: .*|Socket errors: .*)$`)
	wrkMax    = regexp.MustCompile(`(?m)^\s*Latency\s+\S+\s+\S+\s+(\S+)`)
	wrkHalf   = regexp.MustCompile(`(?m)^\s*50%\s+(\S+)`)
	wrkLast   = regexp.MustCompile(`(?m)^\s*99%\s+(\S+)`)
)

// parseWrk parses wrk's output.
func parseWrk(out string) (res loadgen.Result, err error) {
	if m := wrkFailed.FindStringSubmatch(out); m != nil {
		return res, fmt.Errorf("wrk: %s", m[1])
	}
	total := wrkTotal.FindStringSubmatch(out)
	if total == nil {
		return res, errors.New("wrk: unreadable answer")
	}
	res.By = NameWrk
	res.Ops, _ = strconv.ParseInt(total[1], 10, 64)
	if res.Elapsed, err = time.ParseDuration(total[2]); err != nil || res.Ops <= 0 || res.Elapsed <= 0 {
		return res, errors.Join(errors.New("wrk: no request was answered"), err)
	}
	for _, f := range []struct {
		where *regexp.Regexp
		into  *time.Duration
	}{{wrkHalf, &res.P50}, {wrkLast, &res.P99}, {wrkMax, &res.Max}} {
		m := f.where.FindStringSubmatch(out)
		if m == nil {
			return res, errors.New("wrk: unreadable latencies")
		}
		if *f.into, err = time.ParseDuration(m[1]); err != nil {
			return res, fmt.Errorf("wrk: latencies: %w", err)
		}
	}
	return res, nil
}
