// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestKeptIsDurable lets strace judge the order of the system calls: the file is synced, renamed, its
// directory is synced, and then the answer is sent.
func TestKeptIsDurable(t *testing.T) {
	const inChild = "RINGSIDE_UPLOAD_TRACED"
	if os.Getenv(inChild) != "" {
		addr, _, stop := start(t, true)
		defer stop()
		if answer := send(t, addr, "file 5\n", []byte("hello")); answer != "kept\n" {
			t.Errorf("%q", answer)
		}
		return
	}
	program, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs the program strace (Debian: strace)")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), program, "-f", "-y", "-qq", "-o", trace,
		"-e", "trace=fsync,fdatasync,renameat,renameat2,write,writev,sendto,sendmsg", os.Args[0], "-test.run=^TestKeptIsDurable$")
	cmd.Env = append(os.Environ(), inChild+"=1")
	if said, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(said), "ptrace") {
			t.Skipf("needs the permission to trace: %s", said)
		}
		t.Fatalf("%v\n%s", err, said)
	}
	calls, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(string(calls)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(strings.TrimLeft(line, "0123456789 ")), "(")
		switch {
		case strings.HasPrefix(name, "<..."): // the end of a call
		case strings.HasPrefix(name, "rename"):
			order = append(order, "rename")
		case strings.HasSuffix(name, "sync") && strings.Contains(rest, "/.part-"):
			order = append(order, "sync the file")
		case strings.HasSuffix(name, "sync"):
			order = append(order, "sync the directory")
		case strings.Contains(rest, `"kept\n"`):
			order = append(order, "answer")
		}
	}
	if want := []string{"sync the file", "rename", "sync the directory", "answer"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q\n%s", order, want, calls)
	}
}
