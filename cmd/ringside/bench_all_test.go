// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

func (f *fakeSuite) measure(context.Context, benchTools) (*report.Run, error) {
	if len(f.run.Cells) > 0 {
		*f.ran = append(*f.ran, f.run.Cells[0].Suite)
	}
	return f.run, f.err
}

// found is a run of one suite in which the second engine is faster by this factor.
func found(name, workload, base, own string, factor float64) *report.Run {
	a, b := report.Series{Engine: base}, report.Series{Engine: own}
	for range 5 {
		a.Samples = append(a.Samples, report.Sample{Metrics: map[string]float64{measure.OpsPerS: 1000}})
		b.Samples = append(b.Samples, report.Sample{Metrics: map[string]float64{measure.OpsPerS: 1000 * factor}})
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
	a := &allBench{spoilers: func() []string { return []string{"the machine is busy"} }}
	for _, s := range suites {
		s.ran = &ran
		a.parts = append(a.parts, allPart{title: "part", b: s, takes: 1})
	}
	return a, &ran
}

func TestAllSuites(t *testing.T) {
	file := &fakeSuite{run: found("file", "randread", "os", "ringside", 2)}
	nothing := &fakeSuite{run: &report.Run{Skipped: []report.Skip{{Suite: "watch", Reason: "none here"}}}, err: suite.ErrNothing}
	net := &fakeSuite{run: found("net", "echo", "std", "ringside-conn", 0.5)}
	a, ran := allOf(file, nothing, net)
	var warned bytes.Buffer
	printed := &warnings{out: &warned}
	run, err := a.measure(t.Context(), benchTools{warnings: printed})
	if err != nil || strings.Join(*ran, " ") != "file net" || len(run.Cells) != 2 || len(run.Notes) != 1 {
		t.Fatalf("%v: ran %v, %+v", err, *ran, run)
	}
	var out, errs bytes.Buffer
	cmd := newRootCmd(&out, &errs)
	if err := printRun(cmd, run, false, nil, printed); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"note:     the machine is busy\nwords: ", "What this run says\n(conditions that disturb its figures: see the notes at the top)\n", "ufile instead of os.File\n  yes: random reads, O_DIRECT, 8 goroutines, 4 KiB: 2.0 times as many",
		"unet (net.Conn) instead of package net\n  no:  echoed messages, 10 connections: 50 % as many", "skipped: watch: none here",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if f := run.Findings(); len(f.Choices) != 2 || f.Choices[0].Verdict != report.Better || f.Choices[1].Verdict != report.Worse || f.Choices[0].Rate.Median != 2 {
		t.Errorf("findings %+v", f.Choices)
	}
	if !strings.Contains(warned.String(), "the machine is busy") || errs.Len() > 0 {
		t.Errorf("want a warning in %q and none in %q", &warned, &errs)
	}
	// A run that ends early prints no tables, and no warning again.
	run.Cells, run.Notes = nil, append(run.Notes, "a second note")
	if err := printRun(cmd, run, false, context.Canceled, printed); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(warned.String(), "the machine is busy"); got != 1 || !strings.Contains(warned.String(), "a second note") {
		t.Errorf("%d warnings of the same in %q", got, &warned)
	}
}

func TestAllSuitesFail(t *testing.T) {
	broken := errors.New("device broke")
	a, ran := allOf(&fakeSuite{run: found("file", "randread", "os", "ringside", 2), err: broken}, &fakeSuite{run: found("net", "echo", "std", "ringside-conn", 1)})
	run, err := a.measure(t.Context(), benchTools{})
	if !errors.Is(err, broken) || len(*ran) != 1 || len(run.Cells) != 1 {
		t.Errorf("%v: ran %v", err, *ran)
	}
	a, _ = allOf(&fakeSuite{run: &report.Run{}, err: suite.ErrNothing})
	if _, err := a.measure(t.Context(), benchTools{}); !errors.Is(err, suite.ErrNothing) {
		t.Errorf("nothing measured: %v", err)
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
		{[]string{result, "--json"}, exitOK, `"choices": []`},
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
