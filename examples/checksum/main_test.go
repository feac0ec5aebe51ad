// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree makes files and returns what is to be printed of them.
func tree(t *testing.T) (dir, want string) {
	t.Helper()
	dir = t.TempDir()
	for i := range 50 {
		name := fmt.Sprintf("d%d/f%02d", i/20, i)
		content := bytes.Repeat([]byte{byte(i)}, i*7919)
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		want += fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name)
	}
	return dir, want
}

func TestChecksum(t *testing.T) {
	dir, want := tree(t)
	for _, j := range []string{"1", "16"} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-j", j, dir}, &out); err != nil || out.String() != want {
			t.Errorf("-j %s: %v\n%s", j, err, &out)
		}
	}
	for _, args := range [][]string{nil, {"-j", "0", dir}, {filepath.Join(dir, "missing")}} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

// TestNamesOfLines compares the lines of names that could be taken for other lines with those of
// sha256sum, which must also accept them.
func TestNamesOfLines(t *testing.T) {
	program, err := exec.LookPath("sha256sum")
	if err != nil {
		t.Skip("needs the program sha256sum (Debian: coreutils)")
	}
	dir := t.TempDir()
	forged := fmt.Sprintf("a\n%x  other", sha256.Sum256(nil))
	names := []string{"plain", " spaces ", `back\slash`, `\n`, forged, "return\r", "*"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Skipf("a file system without such names: %v", err)
		}
	}
	slices.Sort(names)
	ask := exec.Command(program, append([]string{"--"}, names...)...)
	ask.Dir = dir
	want, err := ask.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{dir}, &out); err != nil || out.String() != string(want) {
		t.Errorf("%v\n%s\nsha256sum:\n%s", err, &out, want)
	}
	check := exec.Command(program, "--check", "--strict")
	check.Dir, check.Stdin = dir, &out
	if said, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestChecksumEnds breaks off for a signal, for an output that is gone, and for a file that
// cannot be read.
func TestChecksumEnds(t *testing.T) {
	dir, _ := tree(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, []string{dir}, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if err := run(t.Context(), []string{dir}, r); err == nil { // not open for writing
		t.Error("no error of an output that cannot be written")
	}
	_ = r.Close()
	if os.Getuid() == 0 {
		return // root reads everything
	}
	if err := os.Chmod(filepath.Join(dir, "d1", "f25"), 0); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{dir}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "d1/f25") {
		t.Errorf("a file that cannot be read: %v", err)
	}
}
