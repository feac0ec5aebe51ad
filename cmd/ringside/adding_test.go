// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// codeBlock is a fenced block of Go or of a change in a page.
var codeBlock = regexp.MustCompile("(?ms)^```(go|diff)\n(.*?)^```$")

// TestAddingAWorkload follows docs/adding-a-workload.md: it lays the files and changes of the page
// over the tree, builds the command, and runs the new workload.
func TestAddingAWorkload(t *testing.T) {
	ringtest.NeedTree(t)
	if testing.Short() {
		t.Skip("needs to build the command again, which -short leaves out")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "adding-a-workload.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for _, m := range codeBlock.FindAllStringSubmatch(string(page), -1) {
		name, text := addedFile(m[2])
		if m[1] == "diff" {
			name, text = changedFile(t, root, m[2])
		}
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, name)] = to
	}
	if len(replace) != 4 {
		t.Fatalf("the page adds or changes %d files", len(replace))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	layer := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(layer, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "ringside.exe")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", layer, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	result := filepath.Join(dir, "scan.json")
	run := exec.CommandContext(t.Context(), program, "bench", "file", "--workload", "scan", "--goroutines", "2", "--block", "4K",
		"--pairs", "1", "--duration", "5ms", "--size", "16M", "--dir", dir, "--json", result)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kept, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"workload": "scan"`, `"engine": "os"`, `"engine": "ringside"`} {
		if !strings.Contains(string(kept), want) {
			t.Errorf("the result file lacks %s:\n%s", want, kept)
		}
	}
}

// addedFile returns the name in the first line of a block, and the rest.
func addedFile(block string) (name, text string) {
	first, rest, _ := strings.Cut(block, "\n")
	return strings.TrimPrefix(first, "// "), rest
}

// changedFile applies a block that has lines of context before what it adds, and no positions.
func changedFile(t *testing.T, root, block string) (name, text string) {
	t.Helper()
	lines := strings.SplitAfter(block, "\n")
	name = strings.TrimSpace(strings.TrimPrefix(lines[1], "+++ b/"))
	old, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	text = string(old)
	at := 0
	for _, line := range lines[2:] {
		if line == "" {
			continue
		}
		rest := line[1:]
		if line[0] == '+' {
			text, at = text[:at]+rest+text[at:], at+len(rest)
			continue
		}
		i := strings.Index(text[at:], rest)
		if i < 0 {
			t.Fatalf("%s has no line %q", name, rest)
		}
		at += i
		if line[0] == '-' {
			text = text[:at] + text[at+len(rest):]
			continue
		}
		at += len(rest)
	}
	return name, text
}
