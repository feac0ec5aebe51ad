// SPDX-License-Identifier: MIT

package uring_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

var updateCoverage = flag.Bool("update", false, "write the coverage of the ledger into testdata/coverage.txt")

const (
	coverageBegin = "<!-- coverage:begin -->"
	coverageEnd   = "<!-- coverage:end -->"
)

// TestCoverage checks that the coverage tables in the documentation match the ledger. With
// -update it writes them.
func TestCoverage(t *testing.T) {
	ringtest.NeedTree(t)
	if runtime.GOOS != "linux" {
		t.Skip("needs the kernel tests of the ledger, which build on Linux")
	}
	entries := ledgerEntries()
	for _, e := range entries {
		if e.missing {
			t.Fatalf("no row for %s %s", e.kind, e.name)
		}
	}
	keepSection(t, filepath.Join("testdata", "coverage.txt"), coverageSummary(entries)+coverageTables(entries))
}

// keepSection compares or replaces the text between the markers of a file.
func keepSection(t *testing.T, name, want string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("needs %s", filepath.Base(name))
	}
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), coverageBegin+"\n")
	got, after, closed := strings.Cut(rest, coverageEnd)
	if !found || !closed {
		t.Errorf("%s has no section between %s and %s", name, coverageBegin, coverageEnd)
		return
	}
	if got == want {
		return
	}
	if !*updateCoverage {
		t.Errorf("%s is out of date: run go test ./uring -run TestCoverage -update", name)
		return
	}
	if err := os.WriteFile(name, []byte(before+coverageBegin+"\n"+want+coverageEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ledgerKinds are the headings under which the documentation lists the parts of the ledger.
var ledgerKinds = []struct{ kind, title, column string }{
	{"op", "Opcodes", "IORING_OP_"},
	{"setup", "Setup flags", "IORING_SETUP_"},
	{"register", "Register operations", "IORING_"},
}

func coverageSummary(entries []ledgerEntry) string {
	var b strings.Builder
	for _, k := range ledgerKinds {
		all, whole, part := 0, 0, 0
		for _, e := range entries {
			switch {
			case e.kind != k.kind:
				continue
			case e.kernel != nil && e.reason == "":
				whole++
			case e.kernel != nil:
				part++
			}
			all++
		}
		fmt.Fprintf(&b, "- %s: %d/%d; the tests try %d of them on the running kernel", k.title, all, all, whole)
		if part > 0 {
			fmt.Fprintf(&b, " and %d in part", part)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func coverageTables(entries []ledgerEntry) string {
	var b strings.Builder
	for _, k := range ledgerKinds {
		columns := []string{k.column, "since", "served by", "golden", "kernel test"}
		if k.kind != "op" {
			columns = append(columns[:3], columns[4])
		}
		fmt.Fprintf(&b, "\n## %s\n\n", k.title)
		tableRow(&b, columns)
		b.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
		for _, e := range entries {
			if e.kind != k.kind {
				continue
			}
			cells := []string{e.name, e.since, methodList(e.uses)}
			if k.kind == "op" {
				cells = append(cells, fmt.Sprintf("✓ (%d)", len(e.goldens)))
			}
			tableRow(&b, append(cells, kernelCell(e)))
		}
	}
	b.WriteString("\n")
	return b.String()
}

func tableRow(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func methodList(uses []string) string {
	return "`" + strings.Join(uses, "`, `") + "`"
}

func kernelCell(e ledgerEntry) string {
	reason := strings.ReplaceAll(e.reason, "|", `\|`)
	switch {
	case e.kernel == nil:
		return "none: " + reason
	case reason != "":
		return "in part: " + reason
	}
	return "✓"
}
