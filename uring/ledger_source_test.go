// SPDX-License-Identifier: MIT

package uring_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// packageFiles parses the package's own files.
func packageFiles(t *testing.T) []*ast.File {
	t.Helper()
	return parseFiles(t, func(name string) bool { return !strings.HasSuffix(name, "_test.go") })
}

func parseFiles(t *testing.T, wanted func(name string) bool) []*ast.File {
	t.Helper()
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if !wanted(name) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		t.Fatal("the source files of the package are missing")
	}
	return files
}

// packageSymbols returns the functions, constants and types, and for each type
// its methods and fields, as in Options.SQPoll.
func packageSymbols(t *testing.T) map[string]bool {
	known := map[string]bool{}
	for _, f := range packageFiles(t) {
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				known[receiver(d)+d.Name.Name] = true
			case *ast.GenDecl:
				addSpecs(known, d)
			}
		}
	}
	return known
}

// receiver returns the name of a method's type with a dot, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return typ.(*ast.Ident).Name + "."
}

func addSpecs(known map[string]bool, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range s.Names {
				known[name.Name] = true
			}
		case *ast.TypeSpec:
			known[s.Name.Name] = true
			addFields(known, s)
		}
	}
}

func addFields(known map[string]bool, typ *ast.TypeSpec) {
	s, ok := typ.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range s.Fields.List {
		for _, name := range field.Names {
			known[typ.Name.Name+"."+name.Name] = true
		}
	}
}

// TestLedgerGoldensComplete fails for a method of SQE that no golden calls.
func TestLedgerGoldensComplete(t *testing.T) {
	ringtest.NeedTree(t)
	called := map[string]bool{}
	for _, f := range parseFiles(t, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok && isGolden(lit) {
				addCalls(called, lit.Elts[1])
			}
			return true
		})
	}
	for m := range reflect.TypeFor[*uring.SQE]().Methods() {
		if !called[m.Name] {
			t.Errorf("no golden calls SQE.%s", m.Name)
		}
	}
}

// isGolden reports whether a composite literal is a golden: its third element is an
// abi.SQE.
func isGolden(lit *ast.CompositeLit) bool {
	if len(lit.Elts) != 3 {
		return false
	}
	want, ok := lit.Elts[2].(*ast.CompositeLit)
	if !ok {
		return false
	}
	typ, ok := want.Type.(*ast.SelectorExpr)
	return ok && typ.Sel.Name == "SQE"
}

func addCalls(called map[string]bool, n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				called[sel.Sel.Name] = true
			}
		}
		return true
	})
}

// TestLedgerSince compares the kernel versions of the rows with those that the
// comments of the constants promise.
func TestLedgerSince(t *testing.T) {
	ringtest.NeedTree(t)
	promised := constantComments(t)
	compared := 0
	for _, e := range ledgerEntries() {
		prefix := map[string]string{"op": "IORING_OP_", "setup": "IORING_SETUP_", "register": "IORING_"}[e.kind]
		want, ok := promised[prefix+e.name]
		if e.missing || !ok {
			continue
		}
		if compared++; want != e.since {
			t.Errorf("%s %s: the row says %s, the constant %s", e.kind, e.name, e.since, want)
		}
	}
	if compared < 63+19+36 {
		t.Errorf("only %d of %d versions compared", compared, 63+19+36)
	}
}

var versionComment = regexp.MustCompile(`(?:^|\()(\d+\.\d+)\)?$`)

// constantComments maps the kernel's name of a constant to the version at the end of the
// comment beside it.
func constantComments(t *testing.T) map[string]string {
	versions := map[string]string{}
	for _, f := range packageFiles(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || spec.Comment == nil {
				return true
			}
			value, ok := spec.Values[0].(*ast.SelectorExpr)
			if m := versionComment.FindStringSubmatch(strings.TrimSpace(spec.Comment.Text())); ok && m != nil {
				versions[value.Sel.Name] = m[1]
			}
			return true
		})
	}
	return versions
}
