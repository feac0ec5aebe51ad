// SPDX-License-Identifier: MIT

package fio

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const answer = `fio: a warning before the document
{"jobs":[{"error":0,"usr_cpu":5.0,"sys_cpu":45.0,"read":{"total_ios":5000,"iops":50000.0,
"lat_ns":{"max":900000},"clat_ns":{"percentile":{"50.000000":150000,"99.000000":340000}}}}]}`

func TestParse(t *testing.T) {
	s, err := parse([]byte(answer), 4096)
	if err != nil {
		t.Fatal(err)
	}
	m := s.Metrics()
	for name, want := range map[string]float64{
		"ops_per_s": 50000, "mb_per_s": 204.8, "cpu_us_per_op": 10, "p50_us": 150, "p99_us": 340, "max_us": 900,
	} {
		if got := m[name]; got < want*0.9999 || got > want*1.0001 {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	if _, ok := m["allocs_per_op"]; ok {
		t.Error("a C program has Go allocations")
	}
	for _, bad := range []string{"", "no document", `{"jobs":[]}`, strings.Replace(answer, `"error":0`, `"error":22`, 1)} {
		if s, err := parse([]byte(bad), 4096); err == nil {
			t.Errorf("%q gave %+v", bad, s)
		}
	}
}

func TestComplaint(t *testing.T) {
	for _, tc := range []struct{ stderr, stdout, want string }{
		{"fio: looks like your file system does not support direct=1\n", "{\n  \"jobs\" : []\n}\n", "fio: looks like your file system does not support direct=1"},
		{"", "fio: pid=1, err=22\nfio: pid=1, err=22\n{\n}\n", "fio: pid=1, err=22"},
		{"one\ntwo\n", "", "one; two"},
		{"", "{\n  \"fio version\" : \"fio-3.39\"\n}\n", "it gave no reason"},
	} {
		if got := complaint(tc.stderr, tc.stdout); got != tc.want {
			t.Errorf("%q, %q: %q, want %q", tc.stderr, tc.stdout, got, tc.want)
		}
	}
}

func TestArgsNeverWrite(t *testing.T) {
	args := RandRead{Path: "/a:b", Span: 1 << 20, Block: 4096, Depth: 8, Measure: time.Second}.args()
	for _, want := range []string{"--readonly", "--rw=randread", `--filename=/a\:b`, "--iodepth=8", "--bs=4096", "--runtime=1000ms"} {
		if !slices.Contains(args, want) {
			t.Errorf("%s is missing in %v", want, args)
		}
	}
}

func TestArgsOfTheEngines(t *testing.T) {
	for name, want := range map[string][]string{
		Name: nil, "": nil,
		NameFixed:   {"--registerfiles", "--fixedbufs"},
		NameBatched: {"--iodepth_batch_submit=8", "--iodepth_batch_complete_min=8", "--iodepth_batch_complete_max=8"},
	} {
		args := RandRead{Engine: name, Path: "/a", Span: 1 << 20, Block: 4096, Depth: 8, Measure: time.Second}.args()
		plain := RandRead{Path: "/a", Span: 1 << 20, Block: 4096, Depth: 8, Measure: time.Second}.args()
		if got := args[len(plain):]; !slices.Equal(args[:len(plain)], plain) || !slices.Equal(got, want) {
			t.Errorf("%s has %v beyond %s, want %v", name, got, Name, want)
		}
	}
}

func TestRunReal(t *testing.T) {
	program, err := Find()
	if err != nil {
		t.Skipf("fio: %v", err)
	}
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r := RandRead{Path: path, Span: 1 << 20, Block: 4096, Depth: 4, Warm: time.Millisecond, Measure: 20 * time.Millisecond, Seed: 1}
	if v, err := Version(t.Context(), program); err != nil || !strings.HasPrefix(v, "fio-") {
		t.Errorf("version %q, %v", v, err)
	}
	s, err := r.Run(t.Context(), program)
	switch {
	case err != nil && (strings.Contains(err.Error(), "Operation not permitted") || strings.Contains(err.Error(), "O_DIRECT") ||
		strings.Contains(err.Error(), "not implemented") || strings.Contains(err.Error(), "not loadable")):
		t.Skipf("fio with io_uring and O_DIRECT: %v", err)
	case err != nil || s.Ops == 0 || s.P50 == 0:
		t.Errorf("%+v, %v", s, err)
	}
	for _, name := range []string{NameFixed, NameBatched} {
		r.Engine = name
		if s, err := r.Run(t.Context(), program); err != nil || s.Ops == 0 || s.P50 == 0 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	r.Path += "-missing"
	if _, err := r.Run(t.Context(), program); err == nil || strings.ContainsAny(err.Error(), "{\n") {
		t.Errorf("a missing file: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r.Path, r.Measure = path, time.Minute
	if _, err := r.Run(ctx, program); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("killed: %v", err)
	}
}
