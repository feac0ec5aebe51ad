// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/replica"
)

// buffer is written by a command while the test reads it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// command runs a command line to its end.
func command(args ...string) (code int, out, errs string) {
	var stdout, stderr buffer
	code = run(context.Background(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// node runs a node until stop is called.
func node(t *testing.T, args ...string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr buffer
	code := make(chan int, 1)
	go func() { code <- run(ctx, append([]string{"run"}, args...), &stdout, &stderr) }()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-code
	})
	t.Cleanup(func() {
		if c := stop(); c != exitOK {
			t.Errorf("%q ended with %d: %s", args, c, stderr.String())
		}
	})
	for !strings.Contains(stdout.String(), "listens at") {
		select {
		case c := <-code:
			t.Fatalf("%q ended with %d: %s", args, c, stderr.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return stop
}

func status(t *testing.T, dir string) (s replica.Status) {
	t.Helper()
	code, out, errs := command("status", "-json", "-dir", dir)
	if code != exitOK {
		t.Fatal(errs)
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// leader returns the directory of the node that leads, or "" without a leader.
func leader(t *testing.T, dirs map[string]string) string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, dir := range dirs {
			if status(t, dir).Leads {
				return dir
			}
		}
	}
	t.Fatal("there is no leader")
	return ""
}

// TestCommands runs a cluster only by the command: nodes join and leave, the leadership
// moves, and a backup of one cluster is restored into another.
func TestCommands(t *testing.T) {
	// The address of a Unix socket has 108 bytes.
	place := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	var peers []string
	dirs, addrs := map[string]string{}, map[string]string{}
	for _, id := range []string{"a", "b", "c", "d", "z"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addrs[id] = l.Addr().String()
		if l.Close(); id < "d" {
			dirs[id] = filepath.Join(place, id)
			peers = append(peers, id+"="+addrs[id])
		}
	}
	for id, dir := range dirs {
		node(t, "-id", id, "-dir", dir, "-listen", addrs[id], "-peers", strings.Join(peers, ","), "-metrics", "")
	}
	first := leader(t, dirs)
	if code, out, errs := command("status", "-dir", first); code != exitOK || !strings.Contains(out, "(leader)") || strings.Count(out, "member ") != 3 {
		t.Errorf("%d %s %s", code, out, errs)
	}

	node(t, "-id", "d", "-dir", filepath.Join(place, "d"), "-listen", addrs["d"])
	if code, _, errs := command("add", "-dir", first, "d", addrs["d"]); code != exitOK {
		t.Error(errs)
	}
	if got := len(status(t, first).Members); got != 4 {
		t.Errorf("%d members", got)
	}
	if code, _, errs := command("verify", "-dir", first); code != exitOK {
		t.Error(errs)
	}
	for id, dir := range dirs {
		if dir != first {
			if code, _, errs := command("remove", "-dir", dir, "d"); code != exitFailure || !strings.Contains(errs, "is not the leader") {
				t.Errorf("a follower removed: %d, %s", code, errs)
			}
			if code, _, errs := command("transfer", "-dir", first, id); code != exitOK {
				t.Error(errs)
			}
			break
		}
	}
	second := leader(t, dirs)
	if code, _, errs := command("remove", "-dir", second, "d"); code != exitOK {
		t.Error(errs)
	}
	backup := filepath.Join(place, "backup")
	if code, _, errs := command("backup", "-dir", second, backup); code != exitOK {
		t.Error(errs)
	}
	if code, _, errs := command("backup", "-dir", second, backup); code != exitFailure || !strings.Contains(errs, "is not empty") {
		t.Errorf("%d %s", code, errs)
	}
	other := filepath.Join(place, "z")
	stop := node(t, "-id", "z", "-dir", other, "-listen", addrs["z"], "-peers", "z="+addrs["z"])
	if code, _, errs := command("restore", "-dir", leader(t, map[string]string{"z": other}), backup); code != exitOK {
		t.Error(errs)
	}
	if code := stop(); code != exitOK {
		t.Errorf("interrupted: %d", code)
	}
	if code, _, errs := command("status", "-dir", other); code != exitFailure || !strings.Contains(errs, "no node runs there") {
		t.Errorf("%d %s", code, errs)
	}
}

// TestCommandLine: errors of the command line name the mistake and have their own exit
// code.
func TestCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"":                         "Usage",
		"nonsense":                 `unknown command "nonsense"`,
		"status":                   "-dir is missing",
		"add -dir /x a":            "got 1 arguments, want 2",
		"transfer -dir /x a b":     "want 0 to 1",
		"status -dir /x -nonsense": "-nonsense",
		"run -id a -peers b":       `"b" is not ID=ADDRESS`,
		"run -id a -cert x":        "needs -cert, -key and -ca",
		"run -id a extra":          `unexpected argument "extra"`,
	} {
		code, _, errs := command(strings.Fields(line)...)
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: %d, %s", line, code, errs)
		}
	}
	for _, line := range []string{"-h", "help", "run -h", "status -h"} {
		if code, out, errs := command(strings.Fields(line)...); code != exitOK || out == "" || errs != "" {
			t.Errorf("%q: %d, %q, %q", line, code, out, errs)
		}
	}
	if code, _, errs := command("run", "-id", "a"); code != exitFailure || !strings.Contains(errs, "Dir is empty") {
		t.Errorf("%d %s", code, errs)
	}
}
