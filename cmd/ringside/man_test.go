// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"man", dir}, &out, &errs); code != exitOK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	for _, name := range []string{"ringside.1", "ringside-bench.1", "ringside-bench-file.1", "ringside-compare.1", "ringside-log-inspect.1"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(b, []byte(".SH NAME")) {
			t.Errorf("%s: %v, %.80q", name, err, b)
		}
	}
	bench, err := os.ReadFile(filepath.Join(dir, "ringside-bench.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`.TH "RINGSIDE-BENCH" "1"`, "\n\\fB--json\\fP \\fIfile\\fP\n", "\n\\fB--full\\fP\n"} {
		if !bytes.Contains(bench, []byte(want)) {
			t.Errorf("no %q in the page of bench", want)
		}
	}
	// Lists: each item is a tagged paragraph, and no line is broken before the terminal's
	// width.
	b, err := os.ReadFile(filepath.Join(dir, "ringside-bench-net.1"))
	if err != nil {
		t.Fatal(err)
	}
	description, _, _ := strings.Cut(string(b), ".SH OPTIONS")
	for _, workload := range []string{"echo", "handlers", "idle"} {
		if !regexp.MustCompile(`(?m)^\.TP\n(\\fB)?` + workload + `(\\fP)?$`).MatchString(description) {
			t.Errorf("the workload %s is no item of a list:\n%s", workload, description)
		}
	}
	if ragged := regexp.MustCompile(`(?m)^ .*$`).FindString(description); ragged != "" {
		t.Errorf("a line that begins with spaces is not filled: %q", ragged)
	}
	if _, err := os.Stat(filepath.Join(dir, "ringside-bench-worker.1")); err == nil {
		t.Error("a hidden command has a manual page")
	}
	if code := run(t.Context(), []string{"man"}, &out, &errs); code != exitUsage {
		t.Errorf("without a directory: exit %d", code)
	}
}
