// SPDX-License-Identifier: MIT

package faultsweep

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// TestSurface checks that exported names are found, including those of embedded types.
func TestSurface(t *testing.T) {
	const src = `package p
type inner struct{}
func (inner) Do() {}
func (inner) hidden() {}
type Outer struct { *middle; n int }
type middle struct { inner }
func (o *Outer) Own() {}
func (g Generic[T]) Get() {}
type Generic[T any] struct{}
func New() *Outer { return nil }
func helper() {}`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Generic.Get", "New", "Outer.Do", "Outer.Own"}
	if got := surface([]*ast.File{f}).exported(); !slices.Equal(got, want) {
		t.Errorf("exported are %q, want %q", got, want)
	}
}
