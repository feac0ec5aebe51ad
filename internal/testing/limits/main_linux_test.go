// SPDX-License-Identifier: MIT

package limits

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// childEnv names the test whose child a process is.
const childEnv = "RINGSIDE_TEST_LIMITS"

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

// inChild runs the test again in a process of its own, to which attr is done,
// and fails when that fails; in the child it returns true. A child that hangs
// ends with the stacks of its goroutines.
func inChild(t *testing.T, attr *syscall.SysProcAttr, env ...string) bool {
	t.Helper()
	if os.Getenv(childEnv) == t.Name() {
		return true
	}
	ringtest.NeedFiles(t, 1024) // what they play with when those are not what is short
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=4m"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(append(os.Environ(), childEnv+"="+t.Name(), "GORACE=atexit_sleep_ms=0"), env...)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case cmd.Process == nil:
		t.Skipf("needs a process with %+v: %v", attr, err)
	case err != nil:
		t.Fatalf("%v\n%s", err, text)
	case strings.Contains(text, "--- SKIP: "+t.Name()+" "):
		t.Skipf("the child says:\n%s", text)
	case !strings.Contains(text, "--- PASS: "+t.Name()+" "):
		t.Fatalf("the child does not say that it passed:\n%s", text)
	default:
		t.Log(text)
	}
	return false
}

// directory returns a directory on a disk, where there is one.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
