// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/probe"
)

// runProbe runs the command line and returns the exit code and the output.
func runProbe(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"probe"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestProbeExitCodes(t *testing.T) {
	for answer, want := range map[probe.Answer]int{
		probe.Yes: exitOK, probe.Unsupported: exitFailure, probe.Forbidden: exitFailure, probe.Inconclusive: exitFailure,
	} {
		for _, args := range [][]string{{}, {"--json"}} {
			cmd := probeCmd(func() probe.Report {
				return probe.Report{OS: "linux", Answer: answer, Usable: answer == probe.Yes}
			})
			cmd.SetArgs(args)
			cmd.SetOut(io.Discard)
			cmd.SilenceErrors = true
			got := exitOK
			if err := cmd.Execute(); err != nil {
				status, ok := errors.AsType[exitStatus](err)
				if !ok {
					t.Fatal(err)
				}
				got = int(status)
			}
			if got != want {
				t.Errorf("%s %v: exit code %d, want %d", answer, args, got, want)
			}
		}
	}
}

func TestProbeHere(t *testing.T) {
	want := exitOK
	if features.HaveIOURing() != nil {
		want = exitFailure
	}
	code, stdout, stderr := runProbe(t)
	if code != want || stderr != "" || !strings.HasPrefix(stdout, "io_uring is ") {
		t.Errorf("exit code %d, want %d; stderr %q, stdout\n%s", code, want, stderr, stdout)
	}
	if strings.Contains(stdout, "\x1b") {
		t.Error("colours in a pipe")
	}
	code, stdout, stderr = runProbe(t, "--json")
	var r probe.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if code != want || stderr != "" || r.Usable != (want == exitOK) {
		t.Errorf("exit code %d, want %d; stderr %q, report %+v", code, want, stderr, r)
	}
	wantBackends(t, r)
}

// wantBackends checks that each package that chooses a backend reports it with the reason.
func wantBackends(t *testing.T, r probe.Report) {
	t.Helper()
	var names []string
	for _, p := range r.Packages {
		names = append(names, p.Name)
		if p.Backend == "" || p.Reason == "" {
			t.Errorf("%+v", p)
		}
	}
	if got := strings.Join(names, " "); got != "ufile unet unet/event watch" {
		t.Errorf("backends of %s", got)
	}
}

func TestProbeSwitchedOff(t *testing.T) {
	t.Setenv(features.EnvBackend, "plain")
	code, stdout, _ := runProbe(t, "--json")
	var r probe.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	wantBackends(t, r)
	if code != exitFailure || r.Usable || r.Policy != string(features.PolicyEnvironment) || r.Remedy == "" {
		t.Errorf("exit code %d, report %+v", code, r)
	}
}

func TestProbeBadArguments(t *testing.T) {
	for _, args := range [][]string{{"--nope"}, {"here"}, {"--json=perhaps"}} {
		code, stdout, stderr := runProbe(t, args...)
		if code != exitUsage || stdout != "" || stderr == "" {
			t.Errorf("%v: exit code %d, want %d; stdout %q, stderr %q", args, code, exitUsage, stdout, stderr)
		}
	}
}
