// SPDX-License-Identifier: MIT

package fusefs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// These are the roles of a process, set by the environment variable roleEnv.
const (
	roleEnv   = "FUSEFS_ROLE"
	roleTests = "tests"  // runs the tests, in a mount namespace of its own
	roleServe = "serve"  // serves; see Serve
	roleReads = "silent" // reads silent files; see silentReader
	roleFiles = "files"  // reads many files; see filesReader
)

// TestMain runs the tests in a mount namespace of their own, so that nothing stays mounted if they
// are killed. If namespaces are forbidden, tests that mount are skipped.
func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case roleServe:
		of, dir := os.Args[len(os.Args)-2], os.Args[len(os.Args)-1]
		if err := Serve(of, dir, os.Stdin, os.Stdout); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case roleReads:
		silentReader(os.Args[len(os.Args)-2], os.Args[len(os.Args)-1])
	case roleFiles:
		filesReader(os.Args[1:])
	case roleTests:
		os.Exit(m.Run())
	default:
		os.Exit(inNamespace(m))
	}
}

func inNamespace(m *testing.M) int {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Args[0] = os.Args[0]
	c.Env = append(os.Environ(), roleEnv+"="+roleTests)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := c.Start()
	if err != nil {
		return m.Run()
	}
	var exit *exec.ExitError
	if err = c.Wait(); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// needNamespace skips a test if its mounts would be visible on the host.
func needNamespace(t testing.TB) {
	t.Helper()
	if os.Getenv(roleEnv) != roleTests {
		t.Skip("needs a mount namespace (CAP_SYS_ADMIN)")
	}
}

// start starts this program in another role, with pipes for its standard input and output.
func start(t testing.TB, role string, args ...string) (*exec.Cmd, *os.File, *os.File) {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), roleEnv+"="+role)
	c.Stdin, c.Stdout, c.Stderr = inR, outW, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(inR.Close(), outW.Close()); err != nil {
		t.Fatal(err)
	}
	return c, inW, outR
}

// mountFUSE mounts the file system of this package for a test, or skips the test if mounting is not
// permitted.
func mountFUSE(t testing.TB) *Control { return mountFUSEOf(t, "") }

// mountFUSEOf is mountFUSE with the content of another directory, unless of is empty.
func mountFUSEOf(t testing.TB, of string) *Control {
	t.Helper()
	needNamespace(t)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	}
	dir := t.TempDir()
	server, in, out := start(t, roleServe, of, dir)
	c, err := NewControl(dir, in, out)
	if err != nil {
		in.Close()
		server.Wait()
		t.Skipf("needs the right to mount FUSE: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		timer := time.AfterFunc(ringtest.Patience, func() { server.Process.Kill() })
		defer timer.Stop()
		if err := server.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
		out.Close()
	})
	return c
}
