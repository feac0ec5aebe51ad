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
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module program\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { undefined() }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOOS", "windows")
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
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
