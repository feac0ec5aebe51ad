// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestAddingAWorkload lays the files and changes of testdata/adding-a-workload.txt over the
// tree, as docs/adding.md describes, builds the command, and runs the new workload.
func TestAddingAWorkload(t *testing.T) {
	build := ringtest.GoWithPage(t, "../..", "cmd/ringside/testdata/adding-a-workload.txt", 4)
	dir := t.TempDir()
	program := filepath.Join(dir, "ringside.exe")
	build("build", "-ldflags=-w", "-o", program, "./cmd/ringside")
	result := filepath.Join(dir, "scan.json")
	run := exec.CommandContext(t.Context(), program, "bench", "file", "--workload", "scan", "--goroutines", "2", "--block", "4K",
		"--tables", "--pairs", "1", "--duration", "5ms", "--size", "16M", "--dir", dir, "--json", result)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kept, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"workload": "scan"`, `"engine": "os"`, `"engine": "ringside"`} {
		if !strings.Contains(string(kept), want) {
			t.Errorf("the result file lacks %s:\n%s", want, kept)
		}
	}
}
