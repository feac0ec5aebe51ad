// SPDX-License-Identifier: MIT

package ringtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// codeBlock is a fenced block of Go or of a change in a page.
var codeBlock = regexp.MustCompile("(?ms)^```(go|diff)\n(.*?)^```$")

// Overlay lays the files and changes of a page over the tree at root, and returns the
// argument of the go command's -overlay. files is their number. A block of Go begins with a
// comment that has the name of a new file. A block of changes begins with +++ and the name
// of a file, and has no positions.
func Overlay(t *testing.T, root, page string, files int) string {
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
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return write("overlay.json", string(overlay))
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
