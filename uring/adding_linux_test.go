// SPDX-License-Identifier: MIT

package uring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestAddingAnOpcode follows docs/adding-an-opcode.md: it lays the files and changes of the page
// over the tree, and runs what judges a new opcode.
func TestAddingAnOpcode(t *testing.T) {
	ringtest.NeedTree(t)
	if testing.Short() {
		t.Skip("needs to build the package again, which -short leaves out")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	overlay := ringtest.Overlay(t, root, "docs/adding-an-opcode.md", 8)
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = root
		// Tests that read the source would read it without the page.
		cmd.Env = append(os.Environ(), ringtest.LaneEnv+"=page")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	test := func(pattern string, packages ...string) string {
		return run(append([]string{"test", "-vet=off", "-v", "-overlay", overlay, "-run", pattern}, packages...)...)
	}
	out := test("^TestLedger(Complete|Builders|Goldens)$|^TestRetryRules$", "./uring", "./reactor")
	for _, want := range []string{"TestLedgerComplete/op/NOP128", "TestLedgerGoldens/NOP128/nop128", "TestRetryRules"} {
		if !strings.Contains(out, "--- PASS: "+want+" ") {
			t.Errorf("%s has not passed:\n%s", want, out)
		}
	}
	out = test("^TestLedgerKernel$/^op$/^NOP128$", "./uring")
	if !strings.Contains(out, "--- PASS: TestLedgerKernel/op/NOP128 ") && !strings.Contains(out, "--- SKIP: TestLedgerKernel/op/NOP128 ") {
		t.Errorf("the kernel test has not run:\n%s", out)
	}
	run("build", "-overlay", overlay, "./features")
}
