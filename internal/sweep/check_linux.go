// SPDX-License-Identifier: MIT

package sweep

import (
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/internal/sys"
)

// Need skips a test where the kernel cannot be made to fail: in builds without
// the race detector, and before Linux 6.10.
func Need(t testing.TB) {
	t.Helper()
	if !sys.Faulty {
		t.Skip("needs the race detector's build, whose door to the kernel asks a test")
	}
	ringtest.NeedKernel(t, "results of no-ops", "6.10")
}

// Check sweeps and has the test fail for what is wrong.
func Check(t *testing.T, ops []Operation) {
	t.Helper()
	Need(t)
	r := Sweep(ops, Options{Brief: testing.Short()})
	t.Logf("%v\n%s", r, strings.Join(r.Lines, "\n"))
	for _, p := range r.Problems {
		t.Error(p)
	}
}
