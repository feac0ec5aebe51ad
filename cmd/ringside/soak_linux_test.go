// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSoak runs the program for two seconds.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("loads the machine")
	}
	dir := t.TempDir()
	r := runProgram(t, "soak", "--for", "2s", "--dir", dir, "--seed", "7")
	if r.code != exitOK || !strings.Contains(r.stdout, "all is well: ") || !strings.Contains(r.stdout, "seed 7") || r.stderr != "" {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	wantEmpty(t, dir)
}

// TestSoakReplay replays one scenario.
func TestSoakReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("loads the machine")
	}
	// A busy machine may not complete any operation in a short time.
	for duration := 10 * time.Millisecond; ; duration *= 10 {
		dir := t.TempDir()
		r := runProgram(t, "soak", "--for", duration.String(), "--dir", dir, "--rows", "files", "--replay", "117440513", "--json")
		var end struct {
			Summary struct{ Operations map[string]int64 }
		}
		lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
		err := json.Unmarshal([]byte(lines[len(lines)-1]), &end)
		wantEmpty(t, dir)
		done := end.Summary.Operations["files"] > 0
		if err == nil && r.code == exitOK && !done && duration < patience {
			continue
		}
		if err != nil || r.code != exitOK || !done {
			t.Errorf("exit %d, %v\n%s%s", r.code, err, r.stdout, r.stderr)
		}
		return
	}
}

// TestSoakInterrupted ends the program in the middle of its first round.
func TestSoakInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("loads the machine")
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := t.TempDir()
		cmd := program(t, "soak", "--for", "1h", "--dir", dir)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		first, err := lines.ReadString('\n') // the round has begun
		if err != nil {
			t.Error(err)
		}
		for _, files := range []string{"*.db-wal", "files-*/log*", "watch-*/0"} {
			eventually(t, files, func() bool {
				found, _ := filepath.Glob(filepath.Join(dir, "*", "*"+files))
				return len(found) > 0
			})
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(lines)
		_ = cmd.Wait() // The exit code is checked below.
		if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(string(rest), "all was well until then") {
			t.Errorf("%v: exit %d\n%s%s%s", sig, code, first, rest, said.String())
		}
		wantEmpty(t, dir)
	}
}
