// SPDX-License-Identifier: MIT

package kernelsim

import (
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestAddingAFault lays the files and changes of testdata/adding-a-fault.txt over the tree,
// as docs/adding.md describes, runs the test of the new fault, and builds the sweeps.
func TestAddingAFault(t *testing.T) {
	run := ringtest.GoWithPage(t, "../../..", "internal/testing/kernelsim/testdata/adding-a-fault.txt", 5)
	var race []string
	if sys.Faulty {
		race = []string{"-race"}
	}
	out := run("test", append(race, "-v", "-vet=off", "-ldflags=-w", "-run", "TestLast$", "./internal/testing/kernelsim")...)
	if !strings.Contains(out, "--- PASS: TestLast") && !strings.Contains(out, "--- SKIP: TestLast") {
		t.Errorf("the test has not run:\n%s", out)
	}
	run("build", append(race, "./internal/testing/faultsweep")...)
}
