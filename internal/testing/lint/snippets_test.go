// SPDX-License-Identifier: MIT

package lint

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// fence is a block of code in a Markdown file.
var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// snippet is a program in a document.
type snippet struct {
	line    int
	text    string
	prints  bool
	printed string
}

// snippets returns the programs of a document, and the lines of Go blocks that are not
// programs. A block of "text" that is the next block after a program is the program's
// output.
func snippets(doc string) (programs []snippet, parts []int) {
	last := false // the block before is a program
	for _, m := range fence.FindAllStringSubmatchIndex(doc, -1) {
		kind, text := doc[m[2]:m[3]], doc[m[4]:m[5]]
		line := strings.Count(doc[:m[0]], "\n") + 1
		program := kind == "go" && strings.HasPrefix(text, "package main\n")
		switch {
		case program:
			programs = append(programs, snippet{line: line, text: text})
		case kind == "go":
			parts = append(parts, line)
		case kind == "text" && last:
			p := &programs[len(programs)-1]
			p.prints, p.printed = true, text
		}
		last = program
	}
	return programs, parts
}

// TestProgramsInDocuments builds the programs of README.md and docs, and runs those whose
// output is given. In a guide every Go block is a program.
func TestProgramsInDocuments(t *testing.T) {
	ringtest.NeedTree(t)
	root := os.DirFS("../../..")
	docs, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(docs, "README.md") {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		programs, parts := snippets(string(text))
		if strings.HasPrefix(name, "docs/guide-") {
			for _, line := range parts {
				t.Errorf("%s:%d: not a program: nothing shows that it works", name, line)
			}
		}
		if testing.Short() {
			continue // building takes seconds each
		}
		for _, s := range programs {
			t.Run(fmt.Sprintf("%s:%d", filepath.Base(name), s.line), func(t *testing.T) { s.try(t, name) })
		}
	}
}

// try builds the program and, if its output is known, runs it in an empty directory.
func (s snippet) try(t *testing.T, doc string) {
	t.Parallel()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if err := os.WriteFile(source, []byte(s.text), 0o600); err != nil {
		t.Fatal(err)
	}
	// From the workspace, so that the program uses this tree.
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, source)
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s:%d: %v\n%s", doc, s.line, err, out)
	}
	if !s.prints || runtime.GOOS != "linux" {
		return // the given output is the output on Linux
	}
	if strings.HasSuffix(doc, "guide-ring.md") {
		ringtest.NeedRing(t) // there is no replacement there
	}
	ctx, cancel := context.WithTimeout(t.Context(), ringtest.Patience) // without the time of compiling
	defer cancel()
	run := exec.CommandContext(ctx, program)
	run.Dir = t.TempDir()
	var problems strings.Builder
	run.Stderr = &problems
	out, err := run.Output()
	if err != nil || string(out) != s.printed {
		t.Errorf("%s:%d: printed %q, want %q; %v %s", doc, s.line, out, s.printed, err, &problems)
	}
}

func TestSnippetsAreFound(t *testing.T) {
	doc := "# A\n\n```go\npackage main\n\nfunc main() {}\n```\n\nIt prints\n\n```text\nhello\n```\n\n```text\nno\n```\n" +
		"```sh\ngo run x\n```\n```go\nx := 1\n```\n```go\npackage main\n```\n"
	programs, parts := snippets(doc)
	if len(programs) != 2 || len(parts) != 1 || parts[0] != 21 {
		t.Fatalf("%+v, %v", programs, parts)
	}
	if p := programs[0]; p.line != 3 || p.text != "package main\n\nfunc main() {}\n" || p.printed != "hello\n" {
		t.Errorf("%+v", p)
	}
	if p := programs[1]; p.line != 24 || p.prints {
		t.Errorf("%+v", p)
	}
}
