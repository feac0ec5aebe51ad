// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/overlay"
)

// TestOverlayOptions checks which flags are ringside's, and that the others reach the go command.
func TestOverlayOptions(t *testing.T) {
	for _, tc := range []struct {
		args, rest string
		want       overlay.Options
		help       bool
	}{
		{"-race ./...", "-race ./...", overlay.Options{Files: true}, false},
		{"--sockets -v", "-v", overlay.Options{Sockets: true}, false},
		{"--files --sockets", "", overlay.Options{Files: true, Sockets: true}, false},
		{". --sockets", ". --sockets", overlay.Options{Files: true}, false},
		{"--sockets --help", "--help", overlay.Options{Sockets: true}, true},
	} {
		o, rest, help := overlayOptions(strings.Fields(tc.args))
		if o != tc.want || strings.Join(rest, " ") != tc.rest || help != tc.help {
			t.Errorf("%s: %+v %q %v", tc.args, o, rest, help)
		}
	}
}

// TestUnchangedElsewhere runs the commands for a system without io_uring, for which nothing is
// compiled but the program.
func TestUnchangedElsewhere(t *testing.T) {
	t.Chdir(foreignProgram(t, "undefined()"))
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"overlay"}, &stdout, &stderr); code != exitOK {
		t.Fatalf("overlay: %d, %s", code, &stderr)
	}
	if text, err := os.ReadFile(strings.TrimSpace(stdout.String())); err != nil || !strings.Contains(string(text), `"Replace": {}`) {
		t.Errorf("overlay: %v, %s", err, text)
	}
	stderr.Reset()
	code := run(t.Context(), []string{"build", "-o", os.DevNull}, &stdout, &stderr)
	if said := stderr.String(); code != 1 || !strings.Contains(said, "undefined: undefined") || !strings.Contains(said, "windows has no io_uring") {
		t.Errorf("build: %d, %s", code, said)
	}
}

// foreignProgram makes a module, and returns its directory. The go command builds for windows from then on, with the
// usual build cache and a new cache of ringside.
func foreignProgram(t *testing.T, main string) (dir string) {
	t.Helper()
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, text := range map[string]string{"go.mod": "module program\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { " + main + " }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOOS", "windows")
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return dir
}

// TestCommandsOfREADME runs the first commands of README.md in the clone, as a new user does. DIR is a module that is not
// in its workspace.
func TestCommandsOfREADME(t *testing.T) {
	root := filepath.Join("..", "..")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(readme), "```\n")
	block, _, _ = strings.Cut(block, "```")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	want := []string{"go run ./cmd/ringside bench ", "make test ", "go run ./cmd/ringside build -C DIR "}
	if len(lines) != len(want) {
		t.Fatalf("README.md begins with the commands\n%s\nwant %d", block, len(want))
	}
	for i, command := range want {
		if !strings.HasPrefix(lines[i], command) {
			t.Errorf("README.md has the line %q, this test runs %q: change both", lines[i], command)
		}
	}
	if !strings.Contains(string(makefile), "\ntest: ") {
		t.Error("Makefile has no target test")
	}
	dir := foreignProgram(t, "")
	t.Chdir(root)
	for _, args := range [][]string{{"bench", "--help"}, {"build", "-C", dir, "-o", os.DevNull}} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code != exitOK {
			t.Errorf("ringside %s: %d\n%s", strings.Join(args, " "), code, &stderr)
		}
	}
}
