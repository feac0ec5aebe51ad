// SPDX-License-Identifier: MIT

package lint

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

var updatePromises = flag.Bool("promises", false, "write docs/promises.txt, the index of tests by promise")

var (
	// promiseLine is an item of docs/guarantees.md, promiseMark the comment of a test that shows it.
	promiseLine = regexp.MustCompile("(?s)^(.*) `([a-z]+[a-z/]*/[a-z0-9-]+)`$")
	promiseMark = regexp.MustCompile(`(?m)^// Promise: (\S+)$`)
)

// TestPromises reads docs/guarantees.md. It fails when no test names a promise in its comment, when
// a test names one that is not there, when a package's section has no promise or does not list what
// is not promised, and when docs/promises.txt is not the index of both. With -promises it writes it.
func TestPromises(t *testing.T) {
	ringtest.NeedTree(t)
	text, err := os.ReadFile("../../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := promiseTests(t)
	var index strings.Builder
	index.WriteString("Written by: go test ./internal/testing/lint -run TestPromises -promises\n")
	sections := strings.Split(string(text), "\n## ")[1:]
	for _, section := range sections {
		title, body, _ := strings.Cut(section, "\n")
		promises, _, notPromised := strings.Cut(body, "\nNot promised:")
		items := strings.Split("\n"+promises, "\n- ")[1:]
		for _, item := range items {
			m := promiseLine.FindStringSubmatch(strings.Join(strings.Fields(item), " "))
			if m == nil {
				t.Errorf("%s: a promise without a name at its end: %s", title, item)
				continue
			}
			if len(tests[m[2]]) == 0 {
				t.Errorf("no test has the comment \"Promise: %s\"", m[2])
			}
			fmt.Fprintf(&index, "\n%s: %s\n", m[2], m[1])
			for _, name := range tests[m[2]] {
				fmt.Fprintf(&index, "    %s\n", name)
			}
			delete(tests, m[2])
		}
		if len(items) == 0 || !notPromised {
			t.Errorf("%s: %d promises, or no line \"Not promised:\"", title, len(items))
		}
	}
	if len(sections) < 9 {
		t.Errorf("docs/guarantees.md has %d sections, want at least 9", len(sections))
	}
	for promise, names := range tests {
		t.Errorf("docs/guarantees.md has no promise %s, which is named by %s", promise, names)
	}
	const file = "../../../docs/promises.txt"
	if *updatePromises {
		if err := os.WriteFile(file, []byte(index.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != index.String() {
		t.Errorf("docs/promises.txt is not up to date (%v): run this test with -promises", err)
	}
}

// promiseTests returns the tests of the repository by the promises that their comments name.
func promiseTests(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	const root = "../../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Doc == nil {
				continue
			}
			for _, line := range f.Doc.List {
				if m := promiseMark.FindStringSubmatch(line.Text); m != nil {
					all[m[1]] = append(all[m[1]], filepath.ToSlash(dir)+"."+f.Name.Name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range all {
		slices.Sort(names)
	}
	return all
}
