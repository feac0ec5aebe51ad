// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for another process.
const patience = time.Minute

// endless are arguments of a run that only a signal ends in time.
func endless(dir string, more ...string) []string {
	return append([]string{
		"bench", "file", "--dir", dir, "--size", "1M", "--duration", "1m", "--block", "4K", "--goroutines", "1", "--cache", "hot",
	}, more...)
}

// running is a program that has begun to measure.
type running struct {
	cmd            *exec.Cmd
	worker         int
	stdout, stderr bytes.Buffer
	out            *os.File // replaces stdout, to be read by hand
}

// startMeasuring starts the program and waits until one of its workers has the test file open.
func startMeasuring(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	r := &running{cmd: program(t, args...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	eventually(t, "a worker that reads the file", func() bool {
		for _, pid := range childrenOf(r.cmd.Process.Pid) {
			if hasOpen(pid, dir) {
				r.worker = pid
				return true
			}
		}
		return false
	})
	return r
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen in time", what)
		}
	}
}

// childrenOf lists the processes whose parent is pid.
func childrenOf(pid int) []int {
	var out []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // The process has ended.
		}
		// The name in parentheses may contain anything; state and parent follow the last
		// parenthesis.
		_, rest, _ := strings.Cut(string(b[bytes.LastIndexByte(b, ')'):]), " ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			out = append(out, child)
		}
	}
	return out
}

// hasOpen reports whether the process has a file below dir open.
func hasOpen(pid int, dir string) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, dir+"/") {
			return true
		}
	}
	return false
}

// gone reports whether a process has ended, even if its parent does not wait for it, as
// where init does not adopt orphans.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	state := stat[bytes.LastIndexByte(stat, ')')+1:]
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || bytes.HasPrefix(state, []byte(" Z"))
}

// TestNohup starts a run by nohup(1), which ignores SIGHUP: the end of a terminal does not end it.
// Promise: cli/signal-ends-command
func TestNohup(t *testing.T) {
	nohup, err := exec.LookPath("nohup")
	if err != nil {
		t.Skip("needs the program nohup (Debian: coreutils)")
	}
	r := &running{cmd: program(t, "bench", "watch", "--duration", "1m")}
	r.cmd.Path, r.cmd.Args = nohup, append([]string{nohup}, r.cmd.Args...)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	r.cmd.Stdout, r.cmd.Stderr, r.out = writer, &r.stderr, reader
	err = r.cmd.Start()
	_ = writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	hasWorker(t, r, "")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "SigIgn:")
	mask, err := strconv.ParseUint(strings.Fields(after)[0], 16, 64)
	if err != nil || mask&(1<<(syscall.SIGHUP-1)) == 0 {
		t.Errorf("ignored signals: %#x, %v", mask, err)
	}
	if err := errors.Join(r.cmd.Process.Signal(syscall.SIGHUP), r.cmd.Process.Signal(syscall.SIGTERM)); err != nil {
		t.Error(err)
	}
	_ = r.cmd.Wait() // the code is checked
	if code := r.cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit %d\n%s", code, &r.stderr)
	}
}

// Promise: cli/earlier-result-file
// Promise: cli/signal-ends-command
func TestSignalsCleanUp(t *testing.T) {
	// Programs inherit an ignored SIGHUP, as of "nohup go test", but not a caught one.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			dir, out := t.TempDir(), t.TempDir()
			kept, fresh := filepath.Join(out, "kept.json"), filepath.Join(out, "fresh.txt")
			if err := os.WriteFile(kept, []byte("earlier result"), 0o600); err != nil {
				t.Fatal(err)
			}
			r := startMeasuring(t, dir, endless(dir, "--json", kept, "--benchfmt", fresh)...)
			if err := r.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = r.cmd.Wait() // The exit code is checked below.
			if code := r.cmd.ProcessState.ExitCode(); code != exitInterrupted {
				t.Errorf("exit %d: %s", code, r.stderr.String())
			}
			// With "0 of 1 cells", or earlier output: both workers open the file.
			if !strings.Contains(r.stderr.String(), "ringside: interrupted: ") || strings.Contains(r.stderr.String(), "context canceled") || r.stdout.Len() != 0 {
				t.Errorf("stdout %q, stderr %q", r.stdout.String(), r.stderr.String())
			}
			wantEmpty(t, dir)
			if !gone(r.worker) {
				t.Errorf("worker %d still runs", r.worker)
			}
			if b, err := os.ReadFile(kept); err != nil || string(b) != "earlier result" {
				t.Errorf("the earlier result is now %q, %v", b, err)
			}
			if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a result file without result: %v", err)
			}
		})
	}
}

// Promise: cli/next-run-removes
func TestNextRunSweepsAfterKill(t *testing.T) {
	dir := t.TempDir()
	r := startMeasuring(t, dir, endless(dir)...)
	// While its owner runs, another run does not remove the file.
	if other := runProgram(t, tiny(dir, "--cache", "hot")...); other.code != exitOK || strings.Contains(other.stdout+other.stderr, "removed") {
		t.Errorf("exit %d: %s", other.code, other.stderr)
	}
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait() // It was killed.
	eventually(t, "the end of the orphaned worker", func() bool { return gone(r.worker) })
	left, err := filepath.Glob(filepath.Join(dir, "ringside-bench-*.dat"))
	if err != nil || len(left) != 1 {
		t.Fatalf("a killed run left %v, %v", left, err)
	}
	next := runProgram(t, tiny(dir, "--cache", "hot")...)
	if next.code != exitOK || !strings.Contains(next.stdout, "removed "+left[0]) {
		t.Errorf("exit %d: %s%s", next.code, next.stdout, next.stderr)
	}
	wantEmpty(t, dir)
}

// limited returns a program that cannot write more than some blocks of 512 or 1024 bytes to a file.
func limited(t *testing.T, blocks int, args ...string) *exec.Cmd {
	t.Helper()
	cmd := program(t, args...)
	cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -f %d && exec "$0" "$@"`, blocks), cmd.Path}, cmd.Args[1:]...)
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skipf("sh: %v", err)
	}
	cmd.Path = sh
	return cmd
}

// TestFileSizeLimit reaches the limit on the file's size in the middle of the file.
// Promise: cli/earlier-result-file
func TestFileSizeLimit(t *testing.T) {
	dir := t.TempDir()
	r := finish(t, limited(t, 512, tiny(dir)...))
	if r.code != exitFailure || !strings.Contains(r.stderr, "skipped: file") || !strings.Contains(r.stderr, "too large") {
		t.Errorf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
	wantEmpty(t, dir)
}

// TestFailedWriteKeepsTheEarlierResult reaches the limit on the file's size in a result file.
func TestFailedWriteKeepsTheEarlierResult(t *testing.T) {
	dir := t.TempDir()
	kept, fresh := filepath.Join(dir, "kept.html"), filepath.Join(dir, "fresh.html")
	if err := os.WriteFile(kept, []byte("earlier result"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{kept, fresh} {
		r := finish(t, limited(t, 1, "report", "../../results/file.json", "--html", page))
		if r.code != exitFailure || !strings.Contains(r.stderr, "too large") {
			t.Errorf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
		}
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "earlier result" {
		t.Errorf("the earlier result is now %q, %v", b, err)
	}
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, dir)
}

// TestResultIsWrittenBeforeItIsPrinted prints to a pipe whose reader has ended, as a pager may.
func TestResultIsWrittenBeforeItIsPrinted(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "r.json")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, tiny(dir, "--cache", "hot", "--json", file)...)
	cmd.Stdout = in
	if err := cmd.Run(); err == nil {
		t.Error("the program did not notice the closed pipe")
	}
	if _, err := readResults(file); err != nil {
		t.Errorf("the result file: %v", err)
	}
}
