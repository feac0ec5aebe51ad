// SPDX-License-Identifier: MIT

package liburing

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/workload"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

const good = `{"ops":5000,"elapsed_ns":1000000,"cpu_ns":750000,"setup_flags":12800,"compiler":"gcc 12.2.0"}` + "\n"

func job(ring string, batch int) workload.Job {
	return workload.Job{
		Suite: "ring", Workload: "nop", Engine: Name, Warm: time.Millisecond, Measure: 5 * time.Millisecond,
		Work: &workload.Nop{Ring: ring, Batch: batch, First: 1<<63 + 5},
	}
}

func TestParse(t *testing.T) {
	a, err := parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := uring.SetupSingleIssuer | uring.SetupDeferTaskrun | uring.SetupTaskrunFlag
	if a.Ops != 5000 || a.Elapsed != time.Millisecond || *a.CPU != 750*time.Microsecond || *a.SetupFlags != want {
		t.Errorf("got %+v", a)
	}
	if got := (&Program{version: "2.3"}).about(a); got != "liburing 2.3, gcc 12.2.0 -O2" {
		t.Errorf("about %q", got)
	}
	for name, bad := range map[string]string{
		"nothing":      "",
		"no document":  "ring: it broke",
		"cut off":      good[:40],
		"no ops":       strings.Replace(good, "5000", "0", 1),
		"negative ops": strings.Replace(good, "5000", "-1", 1),
		"no time":      strings.Replace(good, `"elapsed_ns":1000000,`, "", 1),
		"no CPU time":  strings.Replace(good, `"cpu_ns":750000,`, "", 1),
		"no flags":     strings.Replace(good, `"setup_flags":12800,`, "", 1),
		"words":        strings.Replace(good, "5000", `"many"`, 1),
		"two answers":  good + good,
	} {
		if a, err := parse([]byte(bad)); err == nil {
			t.Errorf("%s: accepted as %+v", name, a)
		}
	}
}

func TestDifferentFlagsAreTold(t *testing.T) {
	a, err := parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	for ring, same := range map[string]bool{workload.RingDefer: true, workload.RingDefault: false} {
		said, err := a.difference(workload.Nop{Ring: ring}.Options())
		if err != nil || (said == "") != same {
			t.Errorf("%s: got %q, %v", ring, said, err)
		}
	}
}

func TestArgs(t *testing.T) {
	j := job(workload.RingDefer, 16)
	j.Measure = 1500 * time.Millisecond
	want := []string{"nop", "defer", "16", "64", "9223372036854775813", "0.001000000", "1.500000000"}
	if got := args(j); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	j.Work = &workload.Reads{Ring: workload.RingDefault, Depth: 8, Path: "a b", Span: 1 << 20, Content: 3, Direct: true, Seed: 4}
	want = []string{"read", "default", "8", "1024", "a b", "1048576", "3", "4", "1", "0.001000000", "1.500000000"}
	if got := args(j); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNoCompilerIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p, err := Build(t.Context())
	if !errors.Is(err, ErrNoCompiler) || p != nil || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("%v, %v", p, err)
	}
}

// fakeCompiler installs a script as cc, and returns the directory of the build.
func fakeCompiler(t *testing.T, script string) (tmp string) {
	t.Helper()
	sh, err := os.Stat("/bin/sh")
	if err != nil || sh.IsDir() {
		t.Skipf("/bin/sh: %v", err)
	}
	bin, tmp := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "cc"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("TMPDIR", tmp)
	return tmp
}

func TestFailedBuild(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   error
		says   string
	}{
		"no header, gcc":    {"echo 'ring.c:10:10: fatal error: liburing.h: No such file or directory' >&2; exit 1", ErrNoLibrary, "liburing-dev"},
		"no header, clang":  {`echo "ring.c:10:10: fatal error: 'liburing.h' file not found" >&2; exit 1`, ErrNoLibrary, "liburing-dev"},
		"no library":        {"echo '/usr/bin/ld: cannot find -luring: No such file or directory' >&2; exit 1", ErrNoLibrary, "liburing-dev"},
		"library too old":   {"echo 'IORING_SETUP_DEFER_TASKRUN undeclared' >&2; exit 1", nil, "IORING_SETUP_DEFER_TASKRUN"},
		"error in a header": {"echo 'liburing.h:7:1: error: expected ;' >&2; exit 1", nil, "expected ;"},
	} {
		t.Run(name, func(t *testing.T) {
			tmp := fakeCompiler(t, tc.script)
			_, err := Build(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.says) || errors.Is(err, ErrNoLibrary) != (tc.want != nil) {
				t.Errorf("%v", err)
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestBuildEndsWithItsContext(t *testing.T) {
	tmp := fakeCompiler(t, "while :; do :; done")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Build(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// build compiles the real program.
func build(t *testing.T) *Program {
	t.Helper()
	p, err := Build(t.Context())
	if errors.Is(err, ErrNoCompiler) || errors.Is(err, ErrNoLibrary) {
		t.Skipf("the peer in C: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was not removed: %v", p.dir, err)
		}
	})
	return p
}

func TestReal(t *testing.T) {
	p := build(t)
	ringtest.NeedRing(t)
	for _, ring := range []string{workload.RingDefault, workload.RingDefer} {
		if err := workload.ProbeRing(ring); errors.Is(err, errors.ErrUnsupported) {
			ringtest.NeedKernel(t, "deferred task work", "6.1")
		}
		for _, batch := range []int{1, 16, workload.NopEntries} {
			j := job(ring, batch)
			s, err := p.Round(t.Context(), j)
			if err != nil {
				t.Fatalf("%s, batch %d: %v", ring, batch, err)
			}
			if chunk := int64(j.Work.(*workload.Nop).Rounds() * batch); s.Ops == 0 || s.Ops%chunk != 0 {
				t.Errorf("%s: %d operations are not whole chunks of %d", ring, s.Ops, chunk)
			}
			if s.Elapsed < j.Measure || !strings.HasPrefix(s.Backend, Name) || s.Heap != nil {
				t.Errorf("%s: %+v", ring, s)
			}
			if _, ok := s.Metrics()["cpu_us_per_op"]; !ok {
				t.Errorf("%s: no CPU time in %+v", ring, s)
			}
			j.Warm, j.Measure = 0, 0
			if s, err := p.Round(t.Context(), j); err != nil || s.Ops != int64(j.Work.(*workload.Nop).Rounds()*batch) {
				t.Errorf("%s: a trial made %d operations, %v", ring, s.Ops, err)
			}
		}
	}
}

// readsJob returns a job that reads a file of 64 blocks in the page cache.
func readsJob(t *testing.T, ring string, depth int) workload.Job {
	t.Helper()
	f, err := datafile.Create(t.Context(), t.TempDir(), 64*datafile.UnitSize, 7, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Remove() })
	j := job(ring, 1)
	j.Work = &workload.Reads{Ring: ring, Depth: depth, Path: f.Path(), Span: f.Size(), Content: f.Seed(), Seed: 9}
	return j
}

func TestRealReads(t *testing.T) {
	p := build(t)
	ringtest.NeedRing(t)
	for _, ring := range []string{workload.RingDefault, workload.RingDefer} {
		if err := workload.ProbeRing(ring); errors.Is(err, errors.ErrUnsupported) {
			ringtest.NeedKernel(t, "deferred task work", "6.1")
		}
		for _, depth := range []int{1, 32, workload.NopEntries} {
			j := readsJob(t, ring, depth)
			s, err := p.Round(t.Context(), j)
			if err != nil {
				t.Fatalf("%s, depth %d: %v", ring, depth, err)
			}
			if s.Ops == 0 || s.Ops%workload.ReadsChunk != 0 || s.Bytes != s.Ops*workload.ReadsBlock {
				t.Errorf("%s, depth %d: %+v", ring, depth, s)
			}
		}
	}
	j := readsJob(t, workload.RingDefault, 4)
	j.Work.(*workload.Reads).Content++
	if _, err := p.Round(t.Context(), j); err == nil || !strings.Contains(err.Error(), "bytes of the file with seed") {
		t.Errorf("the content of another file: %v", err)
	}
	j.Work.(*workload.Reads).Path += "-missing"
	if _, err := p.Round(t.Context(), j); err == nil || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestRealFailures(t *testing.T) {
	p := build(t)
	for _, tc := range []struct {
		job  workload.Job
		says string
	}{
		{job("wedding", 1), "wedding"},
		{job(workload.RingDefault, workload.NopEntries+1), "1 to 256"},
		{workload.Job{Suite: "ring", Workload: "dance"}, "ring/dance"},
	} {
		if _, err := p.Round(t.Context(), tc.job); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v", tc.job, err)
		}
	}
	ringtest.NeedRing(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	j := job(workload.RingDefault, 16)
	j.Measure = time.Minute
	if _, err := p.Round(ctx, j); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("killed: %v", err)
	}
}
