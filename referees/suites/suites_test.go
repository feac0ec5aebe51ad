// SPDX-License-Identifier: MIT

//go:build linux

package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// suite is a set of tests by another project.
type suite struct {
	name   string   // in the table of differences
	module string   // path@version, "" for the toolchain's own packages
	pkgs   []string // without "..."; a brief run uses the first few
	args   []string // of the test binaries
	judges string   // our package that it must use: "ufile" or "unet", or "program" for either
	limit  time.Duration
	brief  []string // modes of a brief run, as in CI
	few    int      // packages of a brief run, 0 for all
	slow   string   // tests that a brief run leaves out
	idle   bool     // it has no sockets, reads no file at an offset, and so must not use our package
}

var (
	allModes = []string{"ring", "plain", "fallback", "auto"}
	netModes = allModes[:3] // the automatic choice of unet is ring if available
	justRing = []string{"ring"}
)

// judge runs a suite in each mode and unchanged, and compares the results.
func judge(t *testing.T, s suite) {
	modes := allModes
	switch s.judges {
	case "unet":
		modes = netModes
	case "program":
		modes = []string{"auto"} // as a user runs it
	}
	switch os.Getenv("RINGSIDE_REFEREES") {
	case "":
		t.Skip("needs RINGSIDE_REFEREES=brief or =all: make referees sets it")
	case "brief":
		modes = s.brief
		if s.few > 0 {
			s.pkgs = s.pkgs[:s.few]
		}
		if s.slow != "" {
			s.args = append(slices.Clip(s.args), "-test.skip="+s.slow)
		}
	}
	if len(modes) == 0 {
		t.Skip("needs RINGSIDE_REFEREES=all: left out of the brief run")
	}
	rows := differences(t, s.name)
	w := newWorkshop(t, s)
	for _, b := range w.buildAll(s.pkgs) {
		std := b.run("std", "")
		for _, mode := range modes {
			b.compare(mode, std, rows)
		}
	}
	for _, mode := range modes {
		if w.used[mode] == s.idle {
			t.Errorf("%s %s: package %s was used: %v, want %v", s.name, mode, s.judges, w.used[mode], !s.idle)
		}
	}
	for _, r := range rows {
		if missing := r.notSeen(modes); len(missing) > 0 {
			t.Errorf("%s %s: no difference any more, %s: take the row out of docs/referees.md", s.name, r.test, strings.Join(missing, ", "))
		}
	}
}

// row is a documented difference.
type row struct {
	modes  []string
	test   string
	rarely bool
	seen   map[string]bool
}

// notSeen returns the modes in which the documented difference did not occur.
func (r *row) notSeen(ran []string) (missing []string) {
	for _, m := range ran {
		if slices.Contains(r.modes, m) && !r.seen[m] && !r.rarely {
			missing = append(missing, m)
		}
	}
	return missing
}

// covers reports whether the row is about a test or about a subtest of it.
func (r *row) covers(test string) bool {
	return test == r.test || strings.HasPrefix(test, r.test+"/")
}

// differences reads the rows of a suite in docs/referees.md.
func differences(t *testing.T, suite string) (rows []*row) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(repo, "docs", "referees.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| suite | modes | test | reason |\n|---|---|---|---|\n")
	if !ok {
		t.Fatal("docs/referees.md has no table of differences")
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != 4 {
			break
		}
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		if cells[0] != suite {
			continue
		}
		r := &row{modes: strings.Split(cells[1], ", "), test: cells[2], seen: map[string]bool{}}
		if r.modes[0] == "all" {
			r.modes = allModes
		}
		r.rarely = strings.HasPrefix(cells[3], "At times:")
		for _, m := range r.modes {
			if !slices.Contains(allModes, m) {
				t.Fatalf("docs/referees.md: %s: no such mode: %q", cells[2], m)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// TestTableOfDifferences checks that each row belongs to a suite. It runs no suite.
// Promise: unet/table-differences-correct
func TestTableOfDifferences(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repo, "docs", "referees.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, s := range all {
		rows += len(differences(t, s.name))
	}
	_, table, _ := strings.Cut(string(page), "|---|---|---|---|\n")
	if lines := strings.Count(table, "\n|") + strings.Count(table[:min(1, len(table))], "|"); lines != rows {
		t.Errorf("docs/referees.md has %d rows, of which %d belong to a suite", lines, rows)
	}
}

// compare runs a test binary in a mode and reports tests that pass unchanged and fail in the mode.
func (b *binary) compare(mode string, std results, rows []*row) {
	t := b.w.t
	start := time.Now()
	got := b.run(mode, "")
	hung := b.hung()
	var again []string
	for try := 0; try < 2; try++ { // a failure caused by load is not a difference
		missed := top(failed(std, got, mode, rows))
		if len(missed) == 0 {
			break
		}
		again = missed
		for name, r := range b.run(mode, "^("+strings.Join(missed, "|")+")$") {
			got[name] = r
		}
	}
	passed, expected := 0, 0
	for name, was := range std {
		switch {
		case was != "pass":
		case got[name] == "pass":
			passed++
		default:
			if r := rowOf(name, mode, rows); r != nil {
				r.seen[mode] = true
				expected++
			}
		}
	}
	bad := failed(std, got, mode, rows)
	said := fmt.Sprintf("%-9s %-9s %-40s %4d passed, %d failed, %d expected differences, %.0fs",
		b.w.suite.name, mode, b.pkg, passed, len(bad), expected, time.Since(start).Seconds())
	if len(again) > 0 {
		said += "; tried again: " + strings.Join(again, " ")
	}
	if hung != "" {
		said += "; over the limit in " + hung
	}
	t.Log(said)
	b.w.suite.count(passed, len(bad), expected)
	for i, name := range bad {
		if i == 20 {
			t.Errorf("%s %s: and %d more", b.pkg, mode, len(bad)-i)
			break
		}
		t.Errorf("%s %s: %s passes with Go's own packages; here it is %s\n%s", b.pkg, mode, name, orMissing(got[name]), b.said(name))
	}
	if passed == 0 {
		t.Errorf("%s %s: no test passed\n%s", b.pkg, mode, b.tail())
	}
}

// totals are the counts of each suite, over all modes.
var totals []total

type total struct {
	suite                    string
	passed, failed, expected int
}

func (s *suite) count(passed, failed, expected int) {
	i := slices.IndexFunc(totals, func(c total) bool { return c.suite == s.name })
	if i < 0 {
		i, totals = len(totals), append(totals, total{suite: s.name})
	}
	c := &totals[i]
	c.passed, c.failed, c.expected = c.passed+passed, c.failed+failed, c.expected+expected
}

func orMissing(s string) string {
	if s == "" {
		return "missing"
	}
	return s
}

// failed returns the tests that pass in std, do not pass in got, and have no row.
func failed(std, got results, mode string, rows []*row) (names []string) {
	for name, was := range std {
		if was == "pass" && got[name] != "pass" && !got.hasInstead(name) && rowOf(name, mode, rows) == nil && !parentOfRow(name, mode, rows) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// hasInstead reports whether a subtest did not run although its test passed, because the names of
// its subtests come from a seed or the clock.
func (r results) hasInstead(part string) bool {
	if r[part] != "" {
		return false
	}
	for i := strings.LastIndexByte(part, '/'); i > 0; i = strings.LastIndexByte(part[:i], '/') {
		if was := r[part[:i]]; was != "" {
			return was == "pass"
		}
	}
	return false
}

func rowOf(name, mode string, rows []*row) *row {
	for _, r := range rows {
		if slices.Contains(r.modes, mode) && r.covers(name) {
			return r
		}
	}
	return nil
}

// parentOfRow reports whether a subtest of the test is in the table. The test fails with it.
func parentOfRow(name, mode string, rows []*row) bool {
	return slices.ContainsFunc(rows, func(r *row) bool {
		return slices.Contains(r.modes, mode) && strings.HasPrefix(r.test, name+"/")
	})
}

// top returns the names of the top-level tests, once each.
func top(names []string) (tops []string) {
	for _, n := range names {
		n, _, _ = strings.Cut(n, "/")
		if !slices.Contains(tops, n) {
			tops = append(tops, n)
		}
	}
	return tops
}
