// SPDX-License-Identifier: MIT

package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// A raw system call does not enter the scheduler. While it blocks it holds its P, and the
// next collection stops the whole process. So each has a row in the table of
// internal/sys/doc.go, with the reason why it cannot block.

// rawRow matches a row of that table.
var rawRow = regexp.MustCompile(`(?m)^//\t(\S+\.\w+)  +(\S+)  +\S.*$`)

// Promise: unet/system-call-blocks
func TestRawCallsHaveReasons(t *testing.T) {
	ringtest.NeedTree(t)
	rows := make(map[string]bool)
	doc, err := os.ReadFile("../../sys/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rawRow.FindAllStringSubmatch(string(doc), -1) {
		rows[m[1]+" "+m[2]] = true
	}
	calls := make(map[string]bool)
	eachFile(t, func(name, text string) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && strings.Contains(text, "RawSyscall") {
			rawCalls(t, name, text, calls)
		}
	})
	if len(calls) < 10 {
		t.Errorf("only %d raw calls were found", len(calls))
	}
	for call := range calls {
		if !rows[call] {
			t.Errorf("%s is a raw system call without a row in internal/sys/doc.go: why can it not block? If it can, use Syscall", call)
		}
	}
	for row := range rows {
		if !calls[row] {
			t.Errorf("internal/sys/doc.go has a row for %s, which is not a raw system call", row)
		}
	}
}

// rawCalls records each raw call of a file: the directory, the function and the system
// call.
func rawCalls(t *testing.T, name, text string, calls map[string]bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		in := "init"
		if f, ok := d.(*ast.FuncDecl); ok {
			in = f.Name.Name
		}
		seen := make(map[ast.Node]bool)
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if isRaw(n.Fun) {
					seen[n.Fun] = true
					calls[filepath.ToSlash(filepath.Dir(name))+"."+in+" "+numberOf(n.Args)] = true
				}
			case *ast.SelectorExpr:
				if isRaw(n) && !seen[n] { // the function is kept in a variable
					calls[filepath.ToSlash(filepath.Dir(name))+"."+in+" ?"] = true
				}
			}
			return true
		})
	}
}

func isRaw(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && strings.HasPrefix(s.Sel.Name, "RawSyscall")
}

// numberOf returns the name of the system call, or of the variable that has its number.
func numberOf(args []ast.Expr) string {
	switch n := args[0].(type) {
	case *ast.SelectorExpr:
		return strings.ToLower(strings.TrimPrefix(n.Sel.Name, "SYS_"))
	case *ast.Ident:
		return n.Name
	}
	return "?"
}

// TestRawCallsAreFound parses a file whose raw calls are known.
func TestRawCallsAreFound(t *testing.T) {
	calls := make(map[string]bool)
	rawCalls(t, "a/b/c.go", `package b
import ("syscall"; "golang.org/x/sys/unix")
func one() { _, _, _ = syscall.RawSyscall(unix.SYS_READ, 0, 0, 0) }
func (x T) two(call uintptr) { f(unix.RawSyscall6(call, 0, 0, 0, 0, 0, 0)) }
func three() { f := syscall.RawSyscall; f(1, 2, 3, 4); syscall.Syscall(unix.SYS_READ, 0, 0, 0) }
`, calls)
	want := []string{"a/b.one read", "a/b.three ?", "a/b.two call"}
	if got := slices.Sorted(maps.Keys(calls)); !slices.Equal(got, want) {
		t.Errorf("found %q", got)
	}
}
