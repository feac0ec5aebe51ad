// SPDX-License-Identifier: MIT

package uring_test

import (
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestAddingAnOpcode lays the files and changes of testdata/adding-an-opcode.txt over the
// tree, as docs/adding.md describes, and runs the tests that check a new opcode.
func TestAddingAnOpcode(t *testing.T) {
	run := ringtest.GoWithPage(t, "..", "uring/testdata/adding-an-opcode.txt", 8)
	out := run("test", "-vet=off", "-ldflags=-w", "-v", "-run",
		"^TestLedger(Complete|Builders|Goldens)$|^TestLedgerKernel$/^op$/^NOP128$|^TestRetryRules$", "./uring", "./reactor")
	for _, want := range []string{"TestLedgerComplete/op/NOP128", "TestLedgerGoldens/NOP128/nop128", "TestRetryRules"} {
		if !strings.Contains(out, "--- PASS: "+want+" ") {
			t.Errorf("%s has not passed:\n%s", want, out)
		}
	}
	if !strings.Contains(out, "--- PASS: TestLedgerKernel/op/NOP128 ") && !strings.Contains(out, "--- SKIP: TestLedgerKernel/op/NOP128 ") {
		t.Errorf("the kernel test has not run:\n%s", out)
	}
	run("build", "./features")
}
