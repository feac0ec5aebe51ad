// SPDX-License-Identifier: MIT

package faultsweep

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

var all = flag.Bool("sweep-all", false, "have the fault sweep fail each answer, and not only the first few of each kind")

// Need skips a test where the kernel cannot be made to fail: in builds without
// the race detector, and before Linux 6.10.
func Need(t testing.TB) {
	t.Helper()
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	ringtest.NeedKernel(t, "results of no-ops", "6.10")
}

// Check sweeps the operations on the real kernel, and fails the test for each problem.
func Check(t *testing.T, ops []Operation) {
	t.Helper()
	Need(t)
	check(t, slices.DeleteFunc(slices.Clone(ops), func(op Operation) bool { return op.Sim }), testing.Short())
}

// CheckSimulated sweeps the operations on simulated rings. Its result does not depend on
// the running kernel. With -short it sweeps less.
func CheckSimulated(t *testing.T, ops []Operation) {
	t.Helper()
	if testing.Short() {
		t.Skip("is the same on each kernel: without -short")
	}
	var simulated []Operation
	for _, op := range ops {
		if op.Sim {
			simulated = append(simulated, op)
		}
		if op.Syscalls && sys.Faulty {
			op.Name, op.atSyscalls = "at the system calls: "+op.Name, true
			simulated = append(simulated, op)
		}
	}
	if len(simulated) == 0 {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	check(t, simulated, false)
}

func check(t *testing.T, ops []Operation, brief bool) {
	t.Helper()
	r := Sweep(ops, Options{Brief: brief, All: *all && !brief, Long: ringtest.Long()})
	t.Logf("%v\n%s", r, strings.Join(r.Lines, "\n"))
	for _, p := range r.Problems {
		t.Error(p)
	}
}
