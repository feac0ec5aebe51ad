// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

// programEnv makes the test binary act as the program, including its workers.
const programEnv = "RINGSIDE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	// A test that measures in this process would start all tests as its workers.
	if os.Getenv(programEnv) != "" || slices.Contains(os.Args, workerName) {
		main()
	}
	os.Exit(m.Run())
}

// program returns a command that runs ringside with these arguments.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	// A program built with the race detector takes a second to exit, and each round runs a
	// program.
	cmd.Env = append(os.Environ(), programEnv+"=1", "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	return cmd
}

// result is the output and exit code of a program.
type result struct {
	code           int
	stdout, stderr string
}

func runProgram(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, program(t, args...))
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// tiny are arguments of a run that only checks function, not speed: one block, one goroutine.
func tiny(dir string, more ...string) []string {
	return append([]string{
		"bench", "file", "--dir", dir, "--size", "1M", "--tables", "--duration", "5ms", "--pairs", "2",
		"--seed", "7", "--no-fio", "--workload", "randread", "--block", "4K", "--goroutines", "1",
	}, more...)
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestArguments(t *testing.T) {
	for _, tc := range []struct {
		args string
		code int
		says string
	}{
		{"", exitOK, "Available Commands"},
		{"--help", exitOK, "Examples"},
		{"bench --help", exitOK, "Examples"},
		{"bench file --help", exitOK, "Examples"},
		{"version", exitOK, "ringside"},
		{"version --json", exitOK, `"go":`},
		{"--version", exitOK, "ringside"},
		{"--version extra", exitUsage, `"extra"`},
		{"bnch", exitUsage, "did you mean bench?"},
		{"bench fil", exitUsage, "did you mean file?"},
		{"bench --pairs many", exitUsage, `--pairs "many": must be a number`},
		{"bench --duration 5", exitUsage, "such as 500ms"},
		{"bench --json", exitUsage, "- for standard output"},
		{"bench net --connections 1,x", exitUsage, "separated by commas"},
		{"bench --workload echo", exitUsage, "belongs to 'ringside bench file', 'ringside bench net'"},
		{"bench --dir /does/not/exist", exitFailure, "--dir /does/not/exist: no such directory"},
		{"bench sqlite --dir /does/not/exist", exitFailure, "--dir"},
		{"help bench file", exitOK, "--workload"},
		{"help bnch", exitUsage, `"bnch"`},
		{"completion csh", exitUsage, `"csh"`},
		{"bench file extra", exitUsage, `"extra"`},
		{"version extra", exitUsage, `"extra"`},
		{"bench file --nope", exitUsage, "--nope"},
		{"bench file --block 3K", exitUsage, "--block"},
		{"bench file --block x", exitUsage, "--block"},
		{"bench file --cache warm", exitUsage, "hot, direct or cold"},
		{"bench file --workload juggling", exitUsage, "randread"},
		{"bench file --fast=slow", exitUsage, "add, only or none"},
		{"bench file --fio-also nothing", exitUsage, "fio-fixed or fio-batched"},
		{"bench file --goroutines 0", exitUsage, "--goroutines"},
		{"bench file --pairs 0", exitUsage, "--pairs"},
		{"bench file --duration 0s", exitUsage, "--duration"},
		{"bench file --json - --benchfmt -", exitUsage, "standard output"},
		{"bench file --json x --benchfmt ./x", exitUsage, "same file"},
		{"bench file --path x --dir y", exitUsage, "--path"},
		{"bench file --dir /does/not/exist", exitFailure, "--dir"},
		{"bench file --json /does/not/exist", exitFailure, "--json /does/not/exist: no such directory: make it, or name another file"},
		{"bench file --html /", exitFailure, "--html /: is a directory: name a file in it"},
		{"bench file --block 4K,5T", exitUsage, "--block 5 TiB: must be a multiple of 4 KiB, up to 64 MiB"},
		{"bench file --size 0", exitUsage, `--size "0": must be positive`},
		{"bench sqlite --scale 0", exitUsage, "--scale 0: must be between 1 and 1000"},
		{"bench file --size 1Q", exitUsage, `--size "1Q": must be a number of bytes, or a number with K, M, G or T`},
		{"bench file --size 9000000T", exitUsage, `--size "9000000T": must be at most 9223372036854775807 bytes`},
		{"bench file --no-fio=perhaps", exitUsage, `--no-fio "perhaps": must be true or false`},
		{"bench file --path /", exitFailure, "--path: / is neither a regular file nor a block device: name a file or a block device that can be read"},
		{"bench file --path /does/not/exist", exitFailure, "--path: open /does/not/exist: "},
		{"bench file --path x --size 1M", exitUsage, "--path x: is an existing file: leave out --dir and --size"},
		{"bench file --path x --fast=only", exitUsage, "--path x: is not measured with --fast=only: leave out one of them"},
		{"bench file --cache hot,hot", exitUsage, `--cache "hot": is given twice: leave out one`},
		{"bench net --idle-for -1s", exitUsage, "--idle-for -1s: must not be negative"},
		{"bench net --engine gnet,monoio --workload idle", exitUsage, "--engine gnet,monoio: not for the chosen workloads: choose another engine"},
		{"bench net --gnet /does/not/exist", exitUsage, "ringside: --gnet /does/not/exist: no such directory: name one"},
		{"compare x", exitUsage, `ringside: compare takes two result files, got "x": make them with`},
		{"report", exitUsage, "ringside: report takes one result file, got none: make it with"},
		{"log verify a b", exitUsage, `ringside: log verify takes one directory, got "a" "b": name the one that has the log`},
		{"man", exitUsage, "ringside: man takes one directory, got none: name the one to write to"},
		{"top", exitUsage, "ringside: top takes one process ID or address, got none: name one program"},
		{"top 1 --every 0s", exitUsage, "--every 0s: must be positive"},
		{"top 1 --count -1", exitUsage, "--count -1: must not be negative"},
		{"top nowhere", exitUsage, `top "nowhere": must be a process ID, HOST:PORT`},
		{"log inspect /does/not/exist", exitFailure, "log inspect /does/not/exist: no such directory: name one that exists"},
		{"man /dev/null/man", exitFailure, "man /dev/null/man: "},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(tc.args), &stdout, &stderr)
		said, silent := stdout.String(), stderr.String()
		if tc.code != exitOK {
			said, silent = silent, said
		}
		if code != tc.code || !strings.Contains(said, tc.says) || silent != "" {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", tc.args, code, stdout.String(), stderr.String())
		}
	}
}

// TestFullOutput: a command whose output is lost fails.
func TestFullOutput(t *testing.T) {
	result := filepath.Join(t.TempDir(), "r.json")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("the system has no /dev/full")
	}
	defer full.Close()
	if r := runProgram(t, tiny(t.TempDir(), "--cache", "hot", "--json", result)...); r.code != exitOK {
		t.Fatalf("bench: exit %d, %s", r.code, r.stderr)
	}
	counters := httptest.NewServer(expvar.Handler())
	defer counters.Close()
	for _, args := range []string{
		"", "--help", "--version", "help", "help bench file", "bench --help", "completion", "completion bash", "completion zsh",
		"completion fish", "completion powershell", "log", "log --help", "probe", "probe --json", "version", "version --json", "report " + result, "report --json " + result,
		"report --html - " + result, "compare " + result + " " + result, "__complete bench ",
		"top --every 1ms " + counters.URL,
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(args), full, &stderr)
		if code != exitFailure || !strings.Contains(stderr.String(), "ringside: write /dev/full: ") {
			t.Errorf("%q: exit %d, stderr %q", args, code, &stderr)
		}
	}
}

func TestInterruptedCode(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, tiny(t.TempDir()), io.Discard, io.Discard); code != exitInterrupted {
		t.Errorf("exit %d", code)
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "4096": 4096, "4k": 4096, "4K": 4096, "4KiB": 4096, "64kb": 65536, "1M": 1 << 20, "2GiB": 2 << 30, "1t": 1 << 40,
	} {
		if got, err := parseSize(in); got != want || err != nil {
			t.Errorf("parseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "K", "-4K", "4X", "4KK", "1.5M", "9999999999T", "4 K"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("parseSize(%q) = %d", in, got)
		}
	}
}

func TestBenchFile(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	jsonFile, benchFile := filepath.Join(out, "r.json"), filepath.Join(out, "r.txt")
	if err := os.WriteFile(jsonFile, bytes.Repeat([]byte("old"), 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	r := runProgram(t, tiny(dir, "--block", "16K", "--goroutines", "4", "--json", jsonFile, "--benchfmt", benchFile)...)
	if r.code != exitOK || strings.Contains(r.stdout+r.stderr, "\x1b") {
		t.Fatalf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{"kernel:", "backend:", "seed 7", "MB/s", "allocs/op", "vs os", "os_4096", "ringside_16384", "page cache hot, 4 goroutines"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, r.stdout)
		}
	}
	wantEmpty(t, dir)
	b, err := os.ReadFile(jsonFile)
	if err != nil {
		t.Fatal(err)
	}
	checkDocument(t, b, 4)
	f, err := os.Open(benchFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := benchLines(t, f); n == 0 || n%4 != 0 {
		t.Errorf("%d benchmark lines, want those of two engines in two rounds", n)
	}
}

// checkDocument reads a result file of the tiny run, or of one with several blocks and numbers of
// goroutines.
func checkDocument(t *testing.T, b []byte, cells int) {
	t.Helper()
	var doc report.Document
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	if doc.Host.Seed != 7 || doc.Host.Backend == "" || !doc.Host.Verified || doc.Host.FileBytes != 1<<20 {
		t.Errorf("host %+v", doc.Host)
	}
	// Two engines for each cell: hot and, where possible, direct and cold.
	skipped := map[any]bool{}
	for _, s := range doc.Skipped {
		skipped[s.Params["cache"]] = true
	}
	n, pools := 0, 0
	for _, r := range doc.Results {
		if r.Engine == "ringside-buffers" { // direct, with io_uring
			pools++
		} else {
			n++
		}
	}
	if n != 2*cells*(3-len(skipped)) || pools != 0 && pools != cells || skipped["hot"] {
		t.Errorf("%d results, and %d with pools, skipped %v", n, pools, doc.Skipped)
	}
	for _, r := range doc.Results {
		if s := r.Metrics["ops_per_s"]; s.Median <= 0 || r.Params["block"] == nil || r.Params["cache"] == nil {
			t.Errorf("result %+v", r)
		}
	}
	if len(doc.Ratios) == 0 {
		t.Error("no ratios")
	}
}

func benchLines(t *testing.T, r io.Reader) (n int) {
	t.Helper()
	reader := benchfmt.NewReader(r, "r.txt")
	for reader.Scan() {
		switch res := reader.Result().(type) {
		case *benchfmt.Result:
			n++
		case *benchfmt.SyntaxError:
			t.Errorf("unreadable: %v", res)
		}
	}
	return n
}

func TestJSONOnStandardOutput(t *testing.T) {
	dir := t.TempDir()
	r := runProgram(t, tiny(dir, "--json", "-")...)
	if r.code != exitOK {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	checkDocument(t, []byte(r.stdout), 1)
	wantEmpty(t, dir)
}

// TestSkippedRunStillWritesItsReasons: a file that cannot be measured is an error, and a run without
// anything to measure is a result.
func TestSkippedRunStillWritesItsReasons(t *testing.T) {
	out := filepath.Join(t.TempDir(), "r.json")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := runProgram(t, "bench", "file", "--path", empty); r.code != exitFailure || !strings.HasSuffix(r.stderr, "/empty is empty: name a file or a block device that can be read\n") {
		t.Errorf("exit %d, %q", r.code, r.stderr)
	}
	t.Setenv("PATH", t.TempDir()) // without mkfs.xfs there is no fast device
	r := runProgram(t, "bench", "file", "--fast=only", "--json", out)
	b, err := os.ReadFile(out)
	var doc report.Document
	if err == nil {
		err = json.Unmarshal(b, &doc)
	}
	if r.code != exitFailure || err != nil || len(doc.Skipped) != 1 || len(doc.Results) != 0 {
		t.Errorf("exit %d, %v, skipped %v", r.code, err, doc.Skipped)
	}
	if !strings.Contains(r.stderr, "skipped: file") {
		t.Errorf("stderr %q", r.stderr)
	}
}

func TestWorkerRefusesNonsense(t *testing.T) {
	for in, says := range map[string]string{
		"nonsense":                              "job",
		`{"engine":"steam"}`:                    "steam",
		`{"engine":"os","workload":"juggling"}`: "juggling",
	} {
		cmd := program(t, workerName)
		cmd.Stdin = strings.NewReader(in)
		if r := finish(t, cmd); r.code != exitFailure || !strings.Contains(r.stderr, says) || r.stdout != "" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", in, r.code, r.stdout, r.stderr)
		}
	}
}
