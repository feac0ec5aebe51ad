// SPDX-License-Identifier: MIT

package ringtest

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// childEnv names the test whose child a process is.
const childEnv = "RINGSIDE_TEST_CHILD_OF"

// IsChild reports whether the process is the child of InChild.
func IsChild(t *testing.T) bool { return os.Getenv(childEnv) == t.Name() }

// InChild runs the calling test again in a child process, with the attributes attr
// and the environment env, and fails or skips as the child does. In the child it returns
// true. A child that hangs ends with the stacks of its goroutines.
func InChild(t *testing.T, attr *syscall.SysProcAttr, env ...string) bool {
	t.Helper()
	if IsChild(t) {
		return true
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=4m"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(append(os.Environ(), childEnv+"="+t.Name(), "GORACE=atexit_sleep_ms=0"), env...)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case cmd.Process == nil:
		t.Skipf("needs a process with %+v: %v", attr, err)
	case err != nil:
		t.Fatalf("%v\n%s", err, text)
	case strings.Contains(text, "--- SKIP: "+t.Name()+" "):
		t.Skipf("the child skips:\n%s", text)
	case !strings.Contains(text, "--- PASS: "+t.Name()+" "):
		t.Fatalf("the child does not report that it passed:\n%s", text)
	default:
		t.Log(text)
	}
	return false
}

// KillAfter starts a process, passes the lines that it prints to line, and kills it
// after n of them for which line returns true. Lines that were in the pipe when the
// process died are passed, too. A process that ends by itself is an error.
func KillAfter(t *testing.T, cmd *exec.Cmd, n int, line func(text string) bool) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if line(lines.Text()) {
			if n--; n == 0 {
				_ = cmd.Process.Kill()
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
}
