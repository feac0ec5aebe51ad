// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"path/filepath"
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
	if _, err := os.Stat(filepath.Join(dir, "ringside-bench-worker.1")); err == nil {
		t.Error("a hidden command has a manual page")
	}
	if code := run(t.Context(), []string{"man"}, &out, &errs); code != exitUsage {
		t.Errorf("without a directory: exit %d", code)
	}
}
