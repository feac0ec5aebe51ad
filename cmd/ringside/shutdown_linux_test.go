// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEachCommandEndsBySignals signals each long-running command while it works. It checks the exit
// code, and that no file and no process is left. It logs the time.
// Promise: cli/signal-ends-command
func TestEachCommandEndsBySignals(t *testing.T) {
	if testing.Short() {
		t.Skip("runs every command")
	}
	// Both signals have the same effect, and a run takes a second: TestSignalsCleanUp has
	// further signals for bench file.
	interrupt, terminate := []syscall.Signal{syscall.SIGINT}, []syscall.Signal{syscall.SIGTERM}
	both := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
	long := []string{"--duration", "1m", "--json", "OUT/r.json"}
	for _, tc := range []struct {
		name    string
		args    []string
		signals []syscall.Signal
		busy    func(t *testing.T, r *running, dir string)
		code    int
	}{
		{"bench", append([]string{"bench", "--dir", "DIR"}, long...), both, writesFile, exitInterrupted},
		{"bench file", append([]string{"bench", "file", "--dir", "DIR", "--size", "1M", "--no-fio"}, long...), terminate, hasWorker, exitInterrupted},
		{"bench file append", append([]string{"bench", "file", "--workload", "append", "--dir", "DIR", "--size", "1M", "--no-fio"}, long...), interrupt, hasWorker, exitInterrupted},
		{"bench net", append([]string{"bench", "net", "--connections", "10"}, long...), terminate, hasWorker, exitInterrupted},
		{"bench watch", append([]string{"bench", "watch"}, long...), interrupt, hasWorker, exitInterrupted},
		{"bench ring", append([]string{"bench", "ring"}, long...), terminate, hasWorker, exitInterrupted},
		{"bench sqlite", append([]string{"bench", "sqlite", "--dir", "DIR"}, long...), interrupt, hasWorker, exitInterrupted},
		{"compare", []string{"compare", "PIPE", "PIPE"}, interrupt, pipeIsRead, exitInterrupted},
		{"report", []string{"report", "PIPE", "--html", "OUT/r.html"}, terminate, pipeIsRead, exitInterrupted},
		{"probe", []string{"probe", "--json"}, interrupt, writes, exitInterrupted},
	} {
		for _, sig := range tc.signals {
			t.Run(tc.name+"/"+sig.String(), func(t *testing.T) {
				dir, out, pipe := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "pipe")
				if err := syscall.Mkfifo(pipe, 0o600); err != nil {
					t.Fatal(err)
				}
				var args []string
				for _, a := range tc.args {
					args = append(args, strings.NewReplacer("DIR", dir, "OUT", out, "PIPE", pipe).Replace(a))
				}
				r := startCommand(t, dir, args)
				tc.busy(t, r, pipe)
				children := childrenOf(r.cmd.Process.Pid)
				begin := time.Now()
				if err := r.cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				stuck := time.AfterFunc(patience, func() { _ = r.cmd.Process.Kill() })
				_ = r.cmd.Wait() // the code is checked below
				stuck.Stop()
				t.Logf("ended in %v", time.Since(begin).Round(time.Millisecond))
				if code := r.cmd.ProcessState.ExitCode(); code != tc.code {
					t.Errorf("exit %d, want %d: %s", code, tc.code, r.stderr.String())
				}
				eventually(t, "the end of its processes", func() bool { return !slices.ContainsFunc(children, isThere) })
				wantEmpty(t, dir)
				wantEmpty(t, out)
			})
		}
	}
}

// startCommand starts the program with its own directory for temporary files. Its standard
// output is a pipe without a reader.
func startCommand(t *testing.T, dir string, args []string) *running {
	t.Helper()
	r := &running{cmd: program(t, args...)}
	r.cmd.Env = append(r.cmd.Env, "TMPDIR="+dir)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	t.Cleanup(func() { _ = reader.Close() })
	r.cmd.Stdout, r.cmd.Stderr, r.out = writer, &r.stderr, reader
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

func isThere(pid int) bool { return !gone(pid) }

// hasWorker waits until one process has worked for the program for a while.
func hasWorker(t *testing.T, r *running, _ string) {
	t.Helper()
	seen := map[int]int{}
	eventually(t, "a worker", func() bool {
		for _, pid := range childrenOf(r.cmd.Process.Pid) {
			if seen[pid]++; seen[pid] == 15 {
				return true
			}
		}
		if r.ended() {
			_ = r.cmd.Wait() // its output is complete then
			t.Skipf("cannot be measured here: %s", r.stderr.String())
		}
		return false
	})
}

// writesFile waits until the program has begun its test file.
func writesFile(t *testing.T, r *running, _ string) {
	t.Helper()
	eventually(t, "a test file", func() bool {
		for _, v := range r.cmd.Env {
			if dir, ok := strings.CutPrefix(v, "TMPDIR="); ok && hasOpen(r.cmd.Process.Pid, dir) {
				return true
			}
		}
		return false
	})
}

// ended reports whether the program has ended and only waits for its exit code to be read.
func (r *running) ended() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
	_, state, ok := strings.Cut(string(b), ") ")
	return err != nil || !ok || strings.HasPrefix(state, "Z")
}

// pipeIsRead waits until the program has opened the pipe, which has no writer.
func pipeIsRead(t *testing.T, _ *running, pipe string) {
	t.Helper()
	eventually(t, "a reader", func() bool {
		fd, err := syscall.Open(pipe, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if err != nil {
			return false // ENXIO: no reader yet
		}
		t.Cleanup(func() { _ = syscall.Close(fd) })
		return true
	})
}

// writes waits for the first byte of an output that is larger than the pipe.
func writes(t *testing.T, r *running, _ string) {
	t.Helper()
	const setPipeSize = 1031 // F_SETPIPE_SZ
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, r.out.Fd(), setPipeSize, 4096); e != 0 {
		t.Fatal(e)
	}
	if _, err := r.out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}
