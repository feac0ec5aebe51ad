// SPDX-License-Identifier: MIT

package blockdisk

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

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
		if err := startKeeper(); err != nil {
			fmt.Fprintln(os.Stderr, "blockdisk: starting what ends the disks:", err)
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

// startKeeper starts a process that ends the disks when this one ends. A process that is killed while
// a thread of it waits for a disk that it serves itself, for example in mount(2), would never end, nor
// would any sync(2) of the machine.
func startKeeper() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envChild+"=keeper")
	cmd.Stderr = os.Stderr
	runtime.LockOSThread() // Pdeathsig comes when this thread ends: the main one, which never waits for a disk
	// A signal to the process group must not end it first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setsid: true}
	return cmd.Start()
}

// keeper is the main function of [startKeeper]'s process. It waits for the signal, then it ends the
// FUSE connections of the disks in this mount namespace.
func keeper() error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	const connections = "/sys/fs/fuse/connections"
	if err := unix.Mount("fusectl", connections, "fusectl", 0, ""); err != nil && err != unix.EBUSY { // EBUSY: it is mounted
		return os.NewSyscallError("mount", err)
	}
	<-ended
	mounts, err := os.ReadFile("/proc/self/mountinfo") // proc_pid_mountinfo(5)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " fuse.blockdisk ") {
			_, id, _ := strings.Cut(strings.Fields(line)[2], ":") // the device's minor number
			err = errors.Join(err, os.WriteFile(connections+"/"+id+"/abort", []byte("1"), 0))
		}
	}
	return err
}

// TestKilledTests kills test programs that use disks. Then sync(2) must return.
func TestKilledTests(t *testing.T) {
	newTrial(t, selected("xfs")[0]) // skips where disks cannot be
	for i := range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Duration(i)*300*time.Millisecond) // any moment will do
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestFailedDisk$/^xfs$", "-states=20")
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, envNamespace) {
				cmd.Env = append(cmd.Env, v)
			}
		}
		err := cmd.Run()
		cancel()
		if ctx.Err() == nil {
			t.Fatalf("the program ended before it was killed: %v", err)
		}
		synced := make(chan struct{})
		go func() {
			unix.Sync()
			close(synced)
		}()
		select {
		case <-synced:
		case <-time.After(time.Minute):
			t.Fatal("sync(2) waits for the disk of a test program that was killed")
		}
	}
}
