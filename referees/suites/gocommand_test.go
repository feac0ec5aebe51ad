// SPDX-License-Identifier: MIT

//go:build linux

package suites

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/overlay"
)

// TestGoCommand builds the go command as "ringside build" does. That one compiles this repository with an
// empty cache, and must make the same programs as the go command.
func TestGoCommand(t *testing.T) {
	if os.Getenv("RINGSIDE_REFEREES") != "all" {
		t.Skip("compiles everything anew: needs RINGSIDE_REFEREES=all, as make referees sets it")
	}
	tools, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	own := filepath.Join(dir, "go-on-ringside")
	build, err := tools.Command(filepath.Join(scratch, "overlay"), overlay.Options{Files: true}, "build", []string{"-C", repo, "-o", own, "cmd/go"})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	log := filepath.Join(dir, "log")
	programs := []string{"./cmd/ringside", "./examples/durable-log", "./examples/fileserver", "./internal/testing/seccomp"}
	for place, goCommand := range map[string]string{"std": "go", "own": own} {
		out := filepath.Join(dir, place) + "/"
		cmd := exec.Command(goCommand, append([]string{"build", "-trimpath", "-buildvcs=false", "-o", out}, programs...)...)
		cmd.Dir, cmd.Env = repo, os.Environ()
		if goCommand == own {
			cmd.Env = append(cmd.Env, "GOROOT="+tools.GOROOT, "GOTOOLCHAIN=local", "GOCACHE="+filepath.Join(dir, "cache"), "RINGSIDE_LOG="+log)
		}
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, text)
		}
	}
	if said, err := os.ReadFile(log); err != nil || !strings.Contains(string(said), "ufile io_uring") {
		t.Errorf("the go command used %q: %v", said, err)
	}
	for _, name := range programs {
		name = filepath.Base(name)
		want, err := os.ReadFile(filepath.Join(dir, "std", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "own", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, %d bytes, want the same %d as of the go command", name, err, len(got), len(want))
		}
	}
}
