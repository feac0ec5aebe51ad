// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/fastdev"
)

// needFastDevice skips the test where a fast device cannot be made.
func needFastDevice(t *testing.T) {
	t.Helper()
	d, err := fastdev.Make(t.Context(), 1)
	if errors.Is(err, fastdev.ErrUnavailable) {
		t.Skipf("fast device: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// fastArgs are arguments of a run on the fast device alone.
func fastArgs(duration string, more ...string) []string {
	return append([]string{
		"bench", "file", "--workload", "randread", "--fast=only", "--size", "1M", "--tables", "--duration", duration, "--pairs", "2", "--block", "4K",
		"--goroutines", "4", "--seed", "7", "--no-fio",
	}, more...)
}

// loopOf returns the loop devices over the memory of a process.
func loopOf(t *testing.T, pid int) (loops []string) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), fmt.Sprintf("ringside-fast-%d ", pid)) {
			loops = append(loops, path)
		}
	}
	return loops
}

func TestFastDevice(t *testing.T) {
	needFastDevice(t)
	out := filepath.Join(t.TempDir(), "r.json")
	cmd := program(t, fastArgs("5ms", "--json", out, "--cache", "direct,cold,hot")...)
	r := finish(t, cmd)
	if r.code != exitOK {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	for _, want := range []string{"fast:", "randread, fast device, O_DIRECT, 4 goroutines", "randread, fast device, page cache cold", "100 %"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, r.stdout)
		}
	}
	if b, err := os.ReadFile(out); err != nil || !strings.Contains(string(b), `"storage": "fast"`) {
		t.Errorf("result %s, %v", b, err)
	}
	eventually(t, "the end of the loop device", func() bool { return len(loopOf(t, cmd.Process.Pid)) == 0 })
}

// TestFastDeviceIsNeverLeftBehind ends a run in the middle, also without giving it time to
// clean up.
// Promise: cli/next-run-removes
func TestFastDeviceIsNeverLeftBehind(t *testing.T) {
	needFastDevice(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		cmd := program(t, fastArgs("1m")...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		pid := cmd.Process.Pid
		eventually(t, "a worker that reads the file", func() bool {
			for _, child := range childrenOf(pid) {
				if readsDataFile(child) {
					return true
				}
			}
			return false
		})
		if len(loopOf(t, pid)) == 0 {
			t.Error("no loop device exists: this test would not find one left behind")
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // The exit code is that of the signal.
		if code := cmd.ProcessState.ExitCode(); sig != syscall.SIGKILL && code != exitInterrupted {
			t.Errorf("%v: exit %d", sig, code)
		}
		eventually(t, "the end of the loop device", func() bool { return len(loopOf(t, pid)) == 0 })
	}
}

// readsDataFile reports whether the process has a test file open, in any directory.
func readsDataFile(pid int) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(filepath.Base(target), "ringside-bench-") {
			return true
		}
	}
	return false
}
