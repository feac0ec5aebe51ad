// SPDX-License-Identifier: MIT

package kernelsim

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestAddingAFault follows docs/adding-a-fault.md: it lays the files and changes of the page over
// the tree, runs the test of the new fault, and builds the sweeps.
func TestAddingAFault(t *testing.T) {
	ringtest.NeedTree(t)
	if testing.Short() {
		t.Skip("needs to build the package again, which -short leaves out")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-overlay", ringtest.Overlay(t, root, "docs/adding-a-fault.md", 5)}
	if sys.Faulty {
		args = append(args, "-race")
	}
	run := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	if out := run(append([]string{"test", "-v", "-vet=off", "-run", "TestLast$"}, append(args, ".")...)...); !strings.Contains(out, "--- PASS: TestLast") && !strings.Contains(out, "--- SKIP: TestLast") {
		t.Errorf("the test has not run:\n%s", out)
	}
	run(append([]string{"build"}, append(args, "../faultsweep")...)...)
}
