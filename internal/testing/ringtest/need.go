// SPDX-License-Identifier: MIT

package ringtest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/uring"
)

// MustEnv, set to "io_uring", turns every skip because of missing io_uring into a
// failure. Lanes with io_uring set it.
const MustEnv = "RINGSIDE_MUST"

// LaneEnv names the kernel lane in which a test binary runs, without the source
// tree.
const LaneEnv = "RINGSIDE_LANE"

// NeedRing skips the test where io_uring cannot be used at all.
func NeedRing(t testing.TB) {
	t.Helper()
	if err := ringError(); err != nil {
		if os.Getenv(MustEnv) == "io_uring" {
			t.Fatalf("io_uring must work here: %v", err)
		}
		t.Skipf("needs io_uring: %v", err)
	}
}

var ringError = sync.OnceValue(func() error {
	r, err := uring.Open(uring.Options{Entries: 1})
	if err != nil {
		return err
	}
	return r.Close()
})

// NeedTree skips a test that reads the source tree in a lane that has none.
func NeedTree(t testing.TB) {
	t.Helper()
	if lane := os.Getenv(LaneEnv); lane != "" {
		t.Skipf("needs the source tree, which the lane %s does not have", lane)
	}
}

// NeedMachine skips a test that changes the whole machine, except in a kernel lane as
// root. The lane lists the tests that ran, from their logs.
func NeedMachine(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(LaneEnv) == "" || os.Getuid() != 0 {
		t.Skipf("%s: only in a virtual machine, as root (make kernels)", what)
	}
	t.Logf("%s: only in a virtual machine", what)
}

// NeedTaskGroup makes a cgroup with the controller pids and returns its directory. The test is skipped where
// none may be created.
func NeedTaskGroup(t testing.TB) string {
	t.Helper()
	for _, base := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir, err := os.MkdirTemp(base, "ringside")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if _, err := os.Stat(filepath.Join(dir, "pids.max")); err == nil {
			return dir
		}
	}
	t.Skip("needs a cgroup with the controller pids that may be created")
	return ""
}

// AsksNoKernel skips, in a kernel lane, a long test that only simulates or computes: its
// result does not depend on the kernel, and emulation makes it several times as long.
func AsksNoKernel(t testing.TB) {
	t.Helper()
	if lane := os.Getenv(LaneEnv); lane != "" {
		t.Skipf("asks no kernel: not in the lane %s", lane)
	}
}

// NeedOp skips the test when the kernel does not list the opcode and is older
// than since. A kernel that should have it and does not list it fails.
func NeedOp(t testing.TB, op uring.Op, since string) {
	t.Helper()
	NeedRing(t)
	ops, err := probedOps()
	if err != nil {
		t.Fatalf("probe: %v", err)
	}
	if !ops.Has(op) {
		NeedKernel(t, "opcode "+op.String(), since)
		t.Fatalf("the kernel is at least %s and does not list opcode %v", since, op)
	}
}

var probedOps = sync.OnceValues(func() (uring.OpSet, error) {
	r, err := uring.Open(uring.Options{Entries: 1})
	if err != nil {
		return uring.OpSet{}, err
	}
	defer r.Close()
	return r.Probe()
})

// NeedKernel skips the test, naming the feature, on kernels older than since.
// Use it for features without a probe; the caller then tries the feature and fails
// when it is missing.
func NeedKernel(t testing.TB, feature, since string) {
	t.Helper()
	NeedRing(t)
	want, err := probe.ParseVersion(since)
	if err != nil {
		t.Fatal(err)
	}
	have, err := probe.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	if have.Less(want) {
		t.Skipf("needs %s: Linux %s, this is %s", feature, want, have)
	}
}
