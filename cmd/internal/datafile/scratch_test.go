// SPDX-License-Identifier: MIT

package datafile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestScratchGoesWithItsFile(t *testing.T) {
	dir := t.TempDir()
	d, err := Create(t.Context(), dir, UnitSize, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	scratch, err := d.Scratch()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.Scratch(); err != nil || again != scratch || filepath.Dir(scratch) != dir {
		t.Errorf("%q and %q, %v", scratch, again, err)
	}
	if err := os.WriteFile(filepath.Join(scratch, "log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if swept, err := Sweep(dir); err != nil || len(swept) != 0 {
		t.Errorf("a directory in use was swept: %v, %v", swept, err)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestSweepTakesScratchOfDeadRuns(t *testing.T) {
	dir := t.TempDir()
	const dead = "ringside-bench-0123456789abcdef"
	ours := filepath.Join(dir, dead+".d")
	for _, path := range []string{ours, filepath.Join(dir, "precious.d"), filepath.Join(dir, "ringside-bench-x.d")} {
		if err := os.MkdirAll(filepath.Join(path, "append-1"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, dead+".dat"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The sweep removes the file first, and then the directory, which is empty then.
	swept, err := Sweep(dir)
	if err != nil || !slices.Contains(swept, ours) || len(swept) != 2 {
		t.Errorf("swept %v, %v", swept, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
