// SPDX-License-Identifier: MIT

package soak

import (
	"strings"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	series := func(n int, f func(i int) int64) (all []int64) {
		for i := range n {
			all = append(all, f(i)<<20)
		}
		return all
	}
	for _, tc := range []struct {
		name          string
		bytes         []int64
		judged, grown bool
	}{
		{"nothing", nil, false, false},
		{"too few", series(6, func(i int) int64 { return int64(100 * i) }), false, false},
		{"flat", series(20, func(int) int64 { return 50 }), true, false},
		{"saw", series(20, func(i int) int64 { return 50 + int64(i%4)*3 }), true, false},
		{"warm-up", series(24, func(i int) int64 { return min(100, int64(i)*30) }), true, false},
		{"steady", series(20, func(i int) int64 { return 50 + int64(i)*4 }), true, true},
		{"late", series(20, func(i int) int64 { return 50 + int64(i)/17*60 }), true, true},
	} {
		g := judgeGrowth("memory", tc.bytes, 8<<20)
		if g.Judged != tc.judged || g.Grown != tc.grown {
			t.Errorf("%s: %s", tc.name, g)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		o    Options
		says string
	}{
		{Options{For: time.Second}, ""},
		{Options{For: time.Second, Rows: []string{SQLite, Watch}}, ""},
		{Options{For: time.Second, Rows: []string{Watch}, Replay: 1}, ""},
		{Options{}, "--for"},
		{Options{For: time.Second, Rows: []string{"disks"}}, `--rows "disks": must be`},
		{Options{For: time.Second, Replay: 1}, "--replay"},
		{Options{For: time.Second, Rows: []string{SQLite}, Replay: 1}, "--replay"},
	} {
		err := tc.o.Check()
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v", tc.o, err)
		}
	}
}

func TestText(t *testing.T) {
	line := Status{Seconds: 3723, Operations: map[string]int64{Files: 12, SQLite: 12_345_678}, Errors: 1}.String()
	if !strings.HasPrefix(line, "01:02:03  files 12  sqlite 12.35M  errors 1  fds") {
		t.Error(line)
	}
	s := Summary{Operations: map[string]int64{Watch: 3}, Interrupted: true, Left: []Left{{}, {}}}
	if text := s.Text(); !strings.HasPrefix(text, "interrupted, and all was well until then: 3 operations") || !strings.Contains(text, "after round 2") {
		t.Error(text)
	}
}
