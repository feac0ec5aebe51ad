// SPDX-License-Identifier: MIT

package faultsweep

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// Exempt lists exported names that no operation covers: the reason, and the names for
// which it holds, separated by spaces.
type Exempt map[string]string

// API fails the test for each exported function or method of the package in the working
// directory that no operation covers and that is not exempt. It also fails for names in
// Covers or Exempt that are not exported, and for names in Covers that the test never calls.
func API(t *testing.T, ops []Operation, exempt Exempt) {
	t.Helper()
	ringtest.NeedTree(t)
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	exported := surface(parse(t, pkg.GoFiles)).exported()
	var calls []string
	for _, name := range append(pkg.TestGoFiles, pkg.XTestGoFiles...) {
		if strings.Contains(name, "sweep") {
			calls = append(calls, called(parse(t, []string{name}))...)
		}
	}
	covered := make(map[string]string)
	for _, op := range ops {
		for name := range strings.FieldsSeq(op.Covers) {
			covered[name] = op.Name
			if !slices.Contains(calls, name[strings.LastIndex(name, ".")+1:]) {
				t.Errorf("operation %q claims to cover %s, which no sweep calls", op.Name, name)
			}
		}
	}
	for reason, names := range exempt {
		for name := range strings.FieldsSeq(names) {
			if by, ok := covered[name]; ok {
				t.Errorf("%s is exempt (%s), and is covered by %q", name, reason, by)
			}
			covered[name] = reason
		}
	}
	for _, name := range exported {
		if covered[name] == "" {
			t.Errorf("no operation of the fault sweep covers %s: add it to one, or say why none can", name)
		}
		delete(covered, name)
	}
	for name := range covered {
		t.Errorf("%s is not exported", name)
	}
	t.Logf("%d functions and methods are exported", len(exported))
}

func parse(t *testing.T, names []string) (files []*ast.File) {
	t.Helper()
	for _, name := range names {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// called returns the names of what files call, or use as a value.
func called(files []*ast.File) (names []string) {
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				names = append(names, n.Sel.Name)
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok {
					names = append(names, f.Name)
				}
			}
			return true
		})
	}
	return names
}

// declared holds the declarations of a package.
type declared struct {
	functions []string
	methods   map[string][]string // of types
	embedded  map[string][]string // types of the package in structs
}

func surface(files []*ast.File) declared {
	d := declared{methods: make(map[string][]string), embedded: make(map[string][]string)}
	for _, f := range files {
		for _, decl := range f.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				d.function(decl)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						d.embed(s)
					}
				}
			}
		}
	}
	return d
}

func (d *declared) function(f *ast.FuncDecl) {
	switch name := f.Name.Name; {
	case !f.Name.IsExported():
	case f.Recv == nil:
		d.functions = append(d.functions, name)
	default:
		of := typeName(f.Recv.List[0].Type)
		d.methods[of] = append(d.methods[of], name)
	}
}

// embed records the methods that a type gets from embedded types.
func (d declared) embed(s *ast.TypeSpec) {
	if d.methods[s.Name.Name] == nil {
		d.methods[s.Name.Name] = nil
	}
	if of, ok := s.Type.(*ast.StructType); ok {
		for _, field := range of.Fields.List {
			if name := typeName(field.Type); len(field.Names) == 0 && name != "" {
				d.embedded[s.Name.Name] = append(d.embedded[s.Name.Name], name)
			}
		}
	}
}

// typeName returns the name of a type of the package, or a pointer to one.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// exported returns functions, and methods as Type.Method, including those of embedded
// types.
func (d declared) exported() []string {
	names := slices.Clone(d.functions)
	for of := range d.methods {
		if ast.IsExported(of) {
			for method := range d.all(of, make(map[string]bool)) {
				names = append(names, of+"."+method)
			}
		}
	}
	slices.Sort(names)
	return names
}

func (d declared) all(of string, into map[string]bool) map[string]bool {
	for _, method := range d.methods[of] {
		into[method] = true
	}
	for _, inner := range d.embedded[of] {
		d.all(inner, into)
	}
	return into
}
