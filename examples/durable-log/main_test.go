// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestLines keeps lines in two runs and finds all of them.
func TestLines(t *testing.T) {
	dir := t.TempDir()
	want := map[string]bool{}
	for part := range 2 {
		var in strings.Builder
		for i := range 100 {
			line := fmt.Sprintf("line %d of part %d", i, part)
			fmt.Fprintln(&in, line)
			want[line] = true
		}
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-j", "8", dir}, strings.NewReader(in.String()), &out); err != nil {
			t.Fatal(err)
		}
		if n := len(strings.Fields(out.String())); n != 100 {
			t.Fatalf("%d lines were acknowledged", n)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-print", dir}, nil, &out); err != nil {
		t.Fatal(err)
	}
	var numbers []int
	for line := range strings.Lines(out.String()) {
		number, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !want[text] {
			t.Errorf("%q was not kept, or twice", text)
		}
		delete(want, text)
		var n int
		if _, err := fmt.Sscan(number, &n); err != nil {
			t.Error(err)
		}
		numbers = append(numbers, n)
	}
	if len(want) > 0 || !slices.IsSorted(numbers) {
		t.Errorf("%d lines are gone; in order: %v", len(want), slices.IsSorted(numbers))
	}
}

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{nil, {"-j", "0", t.TempDir()}, {"/dev/null/x"}} {
		if err := run(t.Context(), args, strings.NewReader("x\n"), &bytes.Buffer{}); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	long := strings.NewReader(strings.Repeat("x", 1<<20))
	if err := run(t.Context(), []string{t.TempDir()}, long, &bytes.Buffer{}); err == nil {
		t.Error("no error of a line that is too long")
	}
}
