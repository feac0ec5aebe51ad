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

var updatePromises = flag.Bool("promises", false, "write the names of tests into docs/promises.txt")

var (
	// promiseLine is a line of docs/promises.txt, promiseMark the comment of a test that shows it.
	promiseLine = regexp.MustCompile("^([a-z]+[a-z/]*/[a-z0-9-]+): (.+)$")
	promiseMark = regexp.MustCompile(`(?m)^// Promise: (\S+)$`)
	// guarantee is an item of docs/guarantees.md, which ends with names of promises.
	guarantee = regexp.MustCompile("^.*?((?: `[a-z0-9-]+`)+)$")
)

// TestPromises reads docs/promises.txt. It fails when no test names a promise in its comment, when a
// test names one that is not there, and when the names of tests below a promise are not those whose
// comments name it. With -promises it writes them.
func TestPromises(t *testing.T) {
	ringtest.NeedTree(t)
	const file = "../../../docs/promises.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tests := promiseTests(t)
	head, lines, _ := strings.Cut(string(text), "\n\n")
	promised := map[string]bool{}
	var index strings.Builder
	index.WriteString(head + "\n")
	for line := range strings.Lines(lines) {
		if line == "\n" || line[0] == ' ' {
			continue
		}
		m := promiseLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || promised[m[1]] {
			t.Errorf("no promise with a name of its own: %s", line)
			continue
		}
		promised[m[1]] = true
		if len(tests[m[1]]) == 0 {
			t.Errorf("no test has the comment \"Promise: %s\"", m[1])
		}
		fmt.Fprintf(&index, "\n%s: %s\n", m[1], m[2])
		for _, name := range tests[m[1]] {
			fmt.Fprintf(&index, "    %s\n", name)
		}
		delete(tests, m[1])
	}
	for promise, names := range tests {
		t.Errorf("docs/promises.txt has no promise %s, which is named by %s", promise, names)
	}
	checkGuarantees(t, promised)
	switch {
	case index.String() == string(text):
	case !*updatePromises:
		t.Errorf("docs/promises.txt is not up to date: run this test with -promises")
	default:
		if err := os.WriteFile(file, []byte(index.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// checkGuarantees fails when an item of docs/guarantees.md names no promise of its package, when a
// section has no item or does not list what is not promised, and when promises have no section.
func checkGuarantees(t *testing.T, promised map[string]bool) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		pkg := strings.ToLower(title)
		packages[pkg] = true
		promises, _, notPromised := strings.Cut(body, "\nNot promised:")
		items := strings.Split("\n"+promises, "\n- ")[1:]
		if len(items) == 0 || !notPromised {
			t.Errorf("%s: %d promises, or no line \"Not promised:\"", title, len(items))
		}
		for _, item := range items {
			m := guarantee.FindStringSubmatch(strings.Join(strings.Fields(item), " "))
			if m == nil {
				t.Errorf("%s: no name of a promise at the end of: %s", title, item)
				continue
			}
			for _, name := range strings.Fields(m[1]) {
				if name = pkg + "/" + strings.Trim(name, "`"); !promised[name] {
					t.Errorf("docs/promises.txt has no promise %s, which docs/guarantees.md names", name)
				}
			}
		}
	}
	for promise := range promised {
		if pkg := promise[:strings.LastIndex(promise, "/")]; !packages[pkg] {
			t.Errorf("docs/guarantees.md has no section for %s", promise)
		}
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
