// SPDX-License-Identifier: MIT

package abi_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// sourceScope type-checks this package's own files; they import nothing.
func sourceScope(t *testing.T) *types.Scope {
	t.Helper()
	ringtest.NeedTree(t)
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	pkg, err := new(types.Config).Check("abi", set, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pkg.Scope()
}

// sourceConstants returns the package's constants.
func sourceConstants(t *testing.T) map[string]constant.Value {
	t.Helper()
	scope, values := sourceScope(t), map[string]constant.Value{}
	for _, name := range scope.Names() {
		if c, ok := scope.Lookup(name).(*types.Const); ok {
			values[name] = c.Val()
		}
	}
	return values
}

// sourceTypes returns the names of the package's types.
func sourceTypes(t *testing.T) []string {
	t.Helper()
	var all []string
	scope := sourceScope(t)
	for _, name := range scope.Names() {
		if _, ok := scope.Lookup(name).(*types.TypeName); ok {
			all = append(all, name)
		}
	}
	return all
}
