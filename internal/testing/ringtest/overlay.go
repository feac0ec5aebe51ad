// SPDX-License-Identifier: MIT

package ringtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// codeBlock is a fenced block of Go or of a change in a page.
var codeBlock = regexp.MustCompile("(?ms)^```(go|diff)\n(.*?)^```$")

// GoWithPage lays the files and changes of a page over the tree at root. It returns a function
// that runs a command of go, such as "build", at the root of that tree and returns its output.
// files is the number of files that the page adds or changes. The test fails if the changes do not
// fit the tree. What follows builds many packages again: it is skipped unless [Long]. All is skipped
// with -short and in a lane without the source tree.
func GoWithPage(t *testing.T, root, page string, files int) func(command string, args ...string) string {
	t.Helper()
	NeedTree(t)
	if testing.Short() {
		t.Skip("needs to build packages again, which -short leaves out")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	layer := overlay(t, root, page, files)
	if !Long() {
		t.Skip("builds packages again: only with RINGSIDE_LONG=1")
	}
	return func(command string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", append([]string{command, "-overlay", layer}, args...)...)
		cmd.Dir = root
		// Tests that read the source would read it without the page.
		cmd.Env = append(os.Environ(), LaneEnv+"=page")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
}

// overlay returns the argument of the go command's -overlay for a page. A block of Go in the
// page begins with a comment that has the name of a new file. A block of changes begins with
// +++ and the name of a file, and has no positions.
func overlay(t *testing.T, root, page string, files int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed, replace := map[string]string{}, map[string]string{}
	for _, m := range codeBlock.FindAllStringSubmatch(string(text), -1) {
		first, rest, _ := strings.Cut(m[2], "\n")
		name := strings.TrimPrefix(first, "// ")
		if m[1] == "diff" {
			if strings.HasPrefix(first, "--- ") {
				first, rest, _ = strings.Cut(rest, "\n")
			}
			name = strings.TrimPrefix(first, "+++ b/")
			old, ok := changed[name]
			if !ok {
				b, err := os.ReadFile(filepath.Join(root, name))
				if err != nil {
					t.Fatal(err)
				}
				old = string(b)
			}
			rest = patched(t, name, old, rest)
		}
		changed[name] = rest
	}
	if len(changed) != files {
		t.Fatalf("%s adds or changes %d files, want %d", page, len(changed), files)
	}
	write := func(name, text string) string {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return to
	}
	for name, text := range changed {
		replace[filepath.Join(root, name)] = write(name, text)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return write("overlay.json", string(list))
}

// patched applies the lines of a change.
func patched(t *testing.T, name, text, change string) string {
	t.Helper()
	at := 0
	for line := range strings.Lines(change) {
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
	return text
}
