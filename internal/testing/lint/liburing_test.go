// SPDX-License-Identifier: MIT

package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestLiburingTableNamesRealTests reads uring/testdata/liburing-tests.txt. It fails when a named test
// does not exist, and when a row has neither a test nor a reason.
func TestLiburingTableNamesRealTests(t *testing.T) {
	ringtest.NeedTree(t)
	text, err := os.ReadFile("../../../uring/testdata/liburing-tests.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z/]+)\\.([A-Za-z0-9]+)`")
	functions := map[string]map[string]bool{}
	var programs []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || cells[1] == "---" || cells[1] == " program " {
			continue
		}
		program := strings.TrimSpace(cells[1])
		programs = append(programs, program)
		tests := names.FindAllStringSubmatch(cells[3], -1)
		if reason, ok := strings.CutPrefix(cells[3], " not applicable: "); len(tests) == 0 && (!ok || strings.TrimSpace(reason) == "") {
			t.Errorf("%s has neither a test nor a reason", program)
		}
		for _, name := range tests {
			if functions[name[1]] == nil {
				functions[name[1]] = functionsOf(t, "../../../"+name[1])
			}
			if !functions[name[1]][name[2]] {
				t.Errorf("%s names the test %s.%s, which does not exist", program, name[1], name[2])
			}
		}
	}
	if len(programs) < 250 || !slices.IsSorted(programs) || len(slices.Compact(slices.Clone(programs))) != len(programs) {
		t.Errorf("%d programs: the table is cut or out of order, or has a row twice", len(programs))
	}
}

// functionsOf returns the test functions of a package; of a package that is a test suite it
// returns all functions.
func functionsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	pattern := "*_test.go"
	if strings.HasSuffix(dir, "test") {
		pattern = "*.go"
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	found := map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				found[fn.Name.Name] = true
			}
		}
	}
	return found
}
