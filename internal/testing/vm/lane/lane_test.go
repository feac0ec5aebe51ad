// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm"
	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

func TestParseOptions(t *testing.T) {
	opt, err := parseOptions(strings.Fields("-kernel 6.1 -kernel 6.12 -pkg ./a -pkg ./b -run X -v -timeout 7s -env A=b -sysctl kernel.x=1=2"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(opt.kernels, []string{"6.1", "6.12"}) || !slices.Equal(opt.pkgs, []string{"./a", "./b"}) {
		t.Errorf("lists %q, %q", opt.kernels, opt.pkgs)
	}
	if opt.run != "X" || !opt.verbose || opt.timeout != 7*time.Second || opt.accel != "tcg" || !opt.scratch || opt.arch != "amd64" {
		t.Errorf("got %+v", opt)
	}
	if opt.sysctls["kernel.x"] != "1=2" || !slices.Equal(opt.env, []string{"A=b"}) {
		t.Errorf("sysctls %q, environment %q", opt.sysctls, opt.env)
	}
	for _, args := range []string{"", "-kernel 6.1 extra", "-kernel 6.1 -timeout 0s", "-kernel 6.1 -sysctl x",
		"-kernel 6.1 -main ./x -run y", "-kernel 6.1 -unknown", "-kernel 6.1 -arch vax"} {
		if _, err := parseOptions(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	opt, err = parseOptions(strings.Fields("-kernel 6.1 -main ./x -- probe --json"), io.Discard)
	if err != nil || !slices.Equal(opt.args, []string{"probe", "--json"}) {
		t.Errorf("got %q, %v", opt.args, err)
	}
}

func TestSelectPackages(t *testing.T) {
	const list = `
{"ImportPath": "github.com/ringside-io/ringside/uring", "Module": {"Path": "github.com/ringside-io/ringside"}, "TestGoFiles": ["a_test.go"]}
{"ImportPath": "github.com/ringside-io/ringside/features", "Module": {"Path": "github.com/ringside-io/ringside"}, "XTestGoFiles": ["a_test.go"]}
{"ImportPath": "github.com/ringside-io/ringside/internal/testing/lint", "Module": {"Path": "github.com/ringside-io/ringside"}, "TestGoFiles": ["a_test.go"]}
{"ImportPath": "github.com/ringside-io/ringside/untested", "Module": {"Path": "github.com/ringside-io/ringside"}}
{"ImportPath": "github.com/ringside-io/ringside/internal/testing/vm", "Module": {"Path": "github.com/ringside-io/ringside"}, "TestGoFiles": ["a_test.go"]}
{"ImportPath": "github.com/ringside-io/ringside/internal/testing/vm/wire", "Module": {"Path": "github.com/ringside-io/ringside"}, "TestGoFiles": ["a_test.go"]}
{"ImportPath": "github.com/ringside-io/ringside/cmd/x", "Module": {"Path": "github.com/ringside-io/ringside/cmd"}, "TestGoFiles": ["a_test.go"]}
`
	for onlyCore, want := range map[bool]string{
		true:  "uring features",
		false: "uring features internal/testing/lint internal/testing/vm internal/testing/vm/wire cmd/x",
	} {
		pkgs, err := selectPackages([]byte(list), onlyCore)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range pkgs {
			got = append(got, strings.TrimPrefix(p.ImportPath, module+"/"))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("onlyCore %t: got %s, want %s", onlyCore, s, want)
		}
	}
	if _, err := selectPackages([]byte("no JSON"), true); err == nil {
		t.Error("no error for garbage")
	}
}

const verboseOutput = `=== RUN   TestGood
    a_test.go:1: chatter
--- PASS: TestGood (0.00s)
=== RUN   TestSkip
    a_test.go:2: needs the moon
--- SKIP: TestSkip (0.00s)
=== RUN   TestBad
=== RUN   TestBad/sub
=== PAUSE TestBad/sub
=== CONT  TestBad/sub
    a_test.go:3: wrong
--- FAIL: TestBad (0.00s)
    --- FAIL: TestBad/sub (0.00s)
    --- SKIP: TestBad/other (0.00s)
FAIL`

func TestFailures(t *testing.T) {
	const want = `    a_test.go:1: chatter
    a_test.go:2: needs the moon
--- SKIP: TestSkip (0.00s)
    a_test.go:3: wrong
--- FAIL: TestBad (0.00s)
    --- FAIL: TestBad/sub (0.00s)
    --- SKIP: TestBad/other (0.00s)
FAIL
`
	if got := string(failures([]byte(verboseOutput))); got != want {
		t.Errorf("got:\n%s", got)
	}
	if got := remarks([]byte(verboseOutput)); got != "\t(2 skipped)" {
		t.Errorf("got %q", got)
	}
	const clock = "=== RUN   TestClock\n    a_test.go:4: sets the clock: only in a virtual machine\n--- PASS: TestClock (0.00s)\n"
	if got := remarks([]byte(clock)); got != "\t(only here: TestClock)" {
		t.Errorf("got %q", got)
	}
	if got := remarks([]byte("PASS\n")); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestPrintResult(t *testing.T) {
	for _, tt := range []struct {
		result vm.Result
		want   string
	}{
		{vm.Result{Took: 1500 * time.Millisecond, Output: []byte("PASS\n")}, "ok  \tx\t1.500s\n"},
		{vm.Result{Exit: 1, Output: []byte("=== RUN\nFAIL\n")}, "FAIL\nFAIL\tx\t0.000s\texit status 1\n"},
		{vm.Result{Exit: -1, Note: "not run"}, "FAIL\tx\t0.000s\tnot run\n"},
	} {
		var out bytes.Buffer
		l := &lane{out: &out}
		l.printResult("x", tt.result, false)
		if out.String() != tt.want {
			t.Errorf("got %q, want %q", &out, tt.want)
		}
	}
}

func TestMissing(t *testing.T) {
	var out bytes.Buffer
	l := &lane{opt: options{arch: "arm64"}, out: &out}
	err := &vm.UnavailableError{Reason: "no qemu", Remedy: "install it"}
	if l.missing(err, false, "6.1", "6.12") != nil {
		t.Error("a missing tool fails outside CI")
	}
	if got, want := out.String(), "SKIP kernel lane 6.1 arm64: no qemu: install it\nSKIP kernel lane 6.12 arm64: no qemu: install it\n"; got != want {
		t.Errorf("got %q", got)
	}
	if l.missing(err, true, "6.1") == nil {
		t.Error("a missing tool passes in CI")
	}
	if l.missing(errors.New("disk full"), false, "6.1") == nil {
		t.Error("another error was taken for a missing tool")
	}
}

func TestJobs(t *testing.T) {
	l := &lane{opt: options{env: []string{"A=b"}, uid: 7}}
	c := &cargo{jobs: []wire.Job{{Path: "/x"}}}
	got := l.jobs(c, "6.1")[0]
	if got.UID != 7 || got.GID != 7 || !slices.Contains(got.Env, "RINGSIDE_LANE=6.1") ||
		!slices.Contains(got.Env, "RINGSIDE_MUST=io_uring") || !slices.Contains(got.Env, "A=b") {
		t.Errorf("got %+v", got)
	}
	if c.jobs[0].Env != nil {
		t.Error("the jobs of one kernel are in the list of the next")
	}
}

func TestComplains(t *testing.T) {
	if complains([]byte("[1] mtrr: your CPUs had inconsistent settings\n")) {
		t.Error("a harmless warning was taken for a bug")
	}
	if !complains([]byte("[1] WARNING: CPU: 1 PID: 1 at io_uring/x.c\n")) {
		t.Error("a kernel warning was not found")
	}
}

func TestWithoutRace(t *testing.T) {
	if got := withoutRace("-race -tags=a -race=true -mod=mod"); got != "-tags=a -mod=mod" {
		t.Errorf("got %q", got)
	}
}

// TestEach runs four kernels, two at a time, which end in another order than they begin:
// their outputs are not mixed.
func TestEach(t *testing.T) {
	var out bytes.Buffer
	l := &lane{opt: options{atOnce: 2}, out: &out}
	broken := errors.New("broken")
	kernels := []vm.Kernel{{Version: "a"}, {Version: "b"}, {Version: "c"}, {Version: "d"}}
	first, others := make(chan struct{}), make(chan struct{})
	var running, most atomic.Int32
	err := l.each(kernels, func(one *lane, k vm.Kernel) error {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		fmt.Fprintf(one.out, "%s begins, ", k.Version)
		one.passed, one.failed = 2, 1
		switch k.Version {
		case "a":
			close(first)
			<-others // all other kernels end before the first
		case "b":
			<-first // two kernels are running now
			return broken
		case "d":
			close(others)
		}
		fmt.Fprintf(one.out, "%s ends\n", k.Version)
		return nil
	})
	if want := "a begins, a ends\nb begins, c begins, c ends\nd begins, d ends\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if !errors.Is(err, broken) || l.passed != 8 || l.failed != 4 || most.Load() != 2 {
		t.Errorf("%v, %d passed, %d failed, %d at once", err, l.passed, l.failed, most.Load())
	}
}
