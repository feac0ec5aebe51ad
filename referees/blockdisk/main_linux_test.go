// SPDX-License-Identifier: MIT

package blockdisk

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var (
	states = flag.Int("states", 0, "how many states of each workload to try; 0 means a few")
	seed   = flag.Uint64("seed", 0, "seed of the workloads and the states; 0 means a new one")
	only   = flag.String("state", "", "cut:number, the only state of the seed to try")
	replay = flag.String("replay", "", "use the record in this file, which a failed test saved, instead of a new one")
)

// These are environment variables with which the test program starts itself again.
const (
	envChild     = "RINGSIDE_BLOCKDISK_CHILD"     // as a workload or a judge
	envNamespace = "RINGSIDE_BLOCKDISK_NAMESPACE" // in a mount namespace
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(envChild); kind != "" {
		os.Exit(child(kind))
	}
	if code, ok := inNamespace(); ok {
		os.Exit(code)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// inNamespace runs the tests in a new mount namespace, so that no mount remains after them.
// It returns false if the tests must run in this process.
func inNamespace() (code int, ok bool) {
	if os.Geteuid() != 0 {
		return 0, false
	}
	if os.Getenv(envNamespace) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			fmt.Fprintln(os.Stderr, "blockdisk: making mounts private:", err)
			return 1, true
		}
		return 0, false
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), envNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	runtime.LockOSThread() // with Pdeathsig the end of this thread counts as the end of the parent
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if err == nil {
		return 0, true
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), true
	}
	return 0, false // namespaces are forbidden: the tests skip
}
