// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
)

// TestBenchNetEndsWithItsProcesses interrupts a run after the server and the load generator
// have started.
func TestBenchNetEndsWithItsProcesses(t *testing.T) {
	cmd := program(t, "bench", "net", "--connections", "5", "--size", "10", "--engine", "std", "--duration", "1m")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var children []int
	eventually(t, "server and load generator", func() bool {
		children = childrenOf(cmd.Process.Pid)
		return len(children) == 2
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // The exit code is checked below.
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(stderr.String(), "interrupted") || stdout.Len() != 0 {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
	for _, pid := range children {
		if !gone(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}
