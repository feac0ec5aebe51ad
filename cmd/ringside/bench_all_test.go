// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

// fakeSuite is a benchmark with given results.
type fakeSuite struct {
	run *report.Run
	err error
	ran *[]string
}

func (*fakeSuite) configure(*benchFlags) error { return nil }
func (*fakeSuite) Limit(time.Duration)         {}

func (f *fakeSuite) measure(context.Context, suite.Env) (*report.Run, error) {
	if len(f.run.Cells) > 0 {
		*f.ran = append(*f.ran, f.run.Cells[0].Suite)
	}
	return f.run, f.err
}

// found is a run of one suite in which the second engine is faster by this factor.
func found(name, workload, base, own string, factor float64) *report.Run {
	a, b := report.Series{Engine: base}, report.Series{Engine: own}
	for range 5 {
		a.Samples = append(a.Samples, report.Sample{Start: len(a.Samples), Metrics: map[string]float64{measure.OpsPerS: 1000}})
		b.Samples = append(b.Samples, report.Sample{Start: len(b.Samples), Metrics: map[string]float64{measure.OpsPerS: 1000 * factor}})
	}
	params := report.Params{"connections": 10}
	if name == "file" {
		params = report.Params{"goroutines": 8, "block": 4096, "cache": "direct"}
	}
	return &report.Run{
		Host:  report.Host{Time: "t", Kernel: "6.1"},
		Cells: []report.Cell{{Suite: name, Workload: workload, Params: params, Series: []report.Series{a, b}}},
	}
}

// allOf is a run of these suites.
func allOf(suites ...*fakeSuite) (*allBench, *[]string) {
	var ran []string
	a := &allBench{}
	for _, s := range suites {
		s.ran = &ran
		a.parts = append(a.parts, allPart{title: "part", b: s, weight: 1})
	}
	return a, &ran
}

func TestAllSuites(t *testing.T) {
	file := &fakeSuite{run: found("file", "randread", "os", "ringside", 2)}
	nothing := &fakeSuite{run: &report.Run{Skipped: []report.Skip{{Suite: "watch", Reason: "none here"}}}, err: suite.ErrNothing}
	net := &fakeSuite{run: found("net", "echo", "std", "ringside-conn", 0.5)}
	a, ran := allOf(file, nothing, net)
	run, err := a.measure(t.Context(), suite.Env{})
	if err != nil || strings.Join(*ran, " ") != "file net" || len(run.Cells) != 2 {
		t.Fatalf("%v: ran %v, %+v", err, *ran, run)
	}
	var out, errs bytes.Buffer
	cmd := newRootCmd(&out, &errs)
	if err := printRun(cmd, run, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Of 2 questions 1 gains, 1 loses, 0 make no difference, 0 are open.\n",
		"gain ufile instead of os.File, random reads, O_DIRECT, 8 goroutines, 4 KiB: 2.00x (2.00–2.00)\n",
		"loss unet instead of package net, echoed messages, 10 connections: 0.50x (0.50–0.50)\n", "skipped: watch: none here",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if f := run.Findings(); len(f.Claims) != 2 || f.Claims[0].Kind != report.Gain || f.Claims[1].Kind != report.Loss || math.Abs(f.Claims[0].Rate.Ratio-2) > 1e-9 {
		t.Errorf("findings %+v", f.Claims)
	}
	if errs.Len() > 0 {
		t.Errorf("errors %q", &errs)
	}
	out.Reset()
	if err := printRun(cmd, run, false, true, nil); err != nil || !strings.Contains(out.String(), "ringside_4096") {
		t.Errorf("%v: no table in\n%s", err, &out)
	}
}

func TestAllSuitesFail(t *testing.T) {
	broken := errors.New("device broke")
	a, ran := allOf(&fakeSuite{run: found("file", "randread", "os", "ringside", 2), err: broken}, &fakeSuite{run: found("net", "echo", "std", "ringside-conn", 1)})
	run, err := a.measure(t.Context(), suite.Env{})
	if !errors.Is(err, broken) || len(*ran) != 1 || len(run.Cells) != 1 {
		t.Errorf("%v: ran %v", err, *ran)
	}
	a, _ = allOf(&fakeSuite{run: &report.Run{}, err: suite.ErrNothing})
	if _, err := a.measure(t.Context(), suite.Env{}); !errors.Is(err, suite.ErrNothing) {
		t.Errorf("nothing measured: %v", err)
	}
}

// configured is a run of suites that are given.
type configured struct{ *allBench }

func (configured) configure(*benchFlags) error { return nil }

// TestFailedCell checks that a run goes on after a suite in which a cell failed, and that the results of
// the others are printed and written, and the exit code is 1.
func TestFailedCell(t *testing.T) {
	file := &fakeSuite{run: found("file", "randread", "os", "ringside", 2), err: fmt.Errorf("1 of 3 cells %w: a record is lost", suite.ErrFailed)}
	file.run.Skipped = []report.Skip{{Suite: "file", Workload: "append", Reason: "failed: a record is lost"}}
	a, ran := allOf(file, &fakeSuite{run: found("net", "echo", "std", "ringside-conn", 0.5)})
	result := filepath.Join(t.TempDir(), "r.json")
	var out, errs bytes.Buffer
	root := newRootCmd(&out, &errs)
	root.AddCommand(newSuiteCmd("fake", "", "", "", suite.Words{}, configured{a}, func(*pflag.FlagSet) {}))
	root.SetArgs([]string{"fake", "--json", result})
	err := root.Execute()
	if !errors.Is(err, suite.ErrFailed) || strings.Join(*ran, " ") != "file net" {
		t.Errorf("%v: ran %v", err, *ran)
	}
	for _, want := range []string{"FAILED: part: 1 of 3 cells failed: a record is lost\n", "Of 2 questions", "skipped: file append: failed: a record is lost\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if d, err := readResults(result); err != nil || len(d.Skipped) != 1 || len(d.Results) != 4 {
		t.Errorf("%v: %+v", err, d)
	}
}

// TestAllConfigured checks the options of the suites of which both grids consist.
func TestAllConfigured(t *testing.T) {
	for full, parts := range map[bool]int{false: 4, true: 5} {
		a := &allBench{full: full, dir: t.TempDir()}
		if err := a.configure(&benchFlags{Timing: suite.Timing{Pairs: 10, Duration: 1}, seed: 1}); err != nil || len(a.parts) != parts {
			t.Errorf("full %v: %v, %d parts", full, err, len(a.parts))
		}
	}
}

// TestReportCommand writes a page from a result file, and refuses a file without samples.
func TestReportCommand(t *testing.T) {
	dir := t.TempDir()
	result, page, old := resultFile(t, 1000), filepath.Join(dir, "r.html"), filepath.Join(dir, "old.json")
	if err := os.WriteFile(old, []byte(`{"schema":2,"results":[{"suite":"ring","workload":"nop","engine":"x","metrics":{"ops_per_s":{"median":1}}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "foreign.json")
	if err := os.WriteFile(foreign, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{result, "--html", page}, exitOK, ""},
		{[]string{result}, exitOK, "ringside"},
		{[]string{result, "--json"}, exitOK, `"claims": []`},
		{[]string{result, "--json", "--html", page}, exitUsage, "--json and --html"},
		{[]string{old}, exitFailure, "no samples"},
		{[]string{foreign}, exitFailure, "not a result of 'ringside bench --json FILE'"},
		{[]string{os.DevNull}, exitFailure, "it is empty"},
		{[]string{result, "--html", filepath.Join(dir, "no", "such")}, exitFailure, "no such directory: make it"},
		{nil, exitUsage, "takes one result file"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"report"}, test.args...), &out, &errs)
		if code != test.code || !strings.Contains(out.String()+errs.String(), test.says) {
			t.Errorf("report %q: exit %d, want %d with %q:\n%s%s", test.args, code, test.code, test.says, &out, &errs)
		}
	}
	b, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(b, []byte("</html>")) {
		t.Errorf("%v: %.100s", err, b)
	}
}
