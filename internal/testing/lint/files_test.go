// SPDX-License-Identifier: MIT

package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// upwardCalls is how many calls between the files of a package may go upward in the order
// that ARCHITECTURE.md gives. The numbers may only shrink.
var upwardCalls = map[string]int{
	"appendlog": 0, "reactor": 5, "replica": 4, "sqlitevfs": 1, "ufile": 1, "unet": 3, "unet/event": 5, "watch": 2,
}

// TestFileOrder reads the order of a package's files in ARCHITECTURE.md. It counts the
// pairs of functions in different files in which the lower file calls the upper.
func TestFileOrder(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	imports := newExportImporter(t)
	for pkg, most := range upwardCalls {
		order := fileOrder(string(doc), pkg)
		if len(order) == 0 {
			t.Errorf("ARCHITECTURE.md has no list of the files of %s", pkg)
			continue
		}
		total, up := callsBetween(t, imports, pkg, order)
		t.Logf("%s: %d calls between files, %d of them upward", pkg, total, len(up))
		if len(up) != most {
			t.Errorf("%s: %d calls go upward in the order of ARCHITECTURE.md, want at most %d:\n%s", pkg, len(up), most, strings.Join(up, "\n"))
		}
	}
}

// TestDrawing compares the drawing of packages in ARCHITECTURE.md with layers: the drawing
// has each package of the product, and a package's imports are on its line or below.
func TestDrawing(t *testing.T) {
	doc, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, drawing, _ := strings.Cut(string(doc), "```\n")
	drawing, _, _ = strings.Cut(drawing, "```")
	line := make(map[string]int)
	for n, text := range strings.Split(drawing, "\n") {
		for i, word := range strings.Fields(text) {
			if _, known := layers[word]; known && (i == 0 || i == 1) {
				line[word] = n + 1
			}
		}
	}
	for pkg, imports := range layers {
		if strings.HasPrefix(pkg, "examples") || strings.HasPrefix(pkg, "internal/testing") {
			continue
		}
		if line[pkg] == 0 {
			t.Errorf("the drawing of ARCHITECTURE.md lacks %s", pkg)
		}
		for _, other := range imports {
			if line[other] < line[pkg] {
				t.Errorf("%s may import %s, which is above it in the drawing of ARCHITECTURE.md", pkg, other)
			}
		}
	}
}

// fileOrder returns the files in the block after the line "Files of `pkg`...", one on each
// line.
func fileOrder(doc, pkg string) (files []string) {
	_, rest, found := strings.Cut(doc, "Files of `"+pkg+"`")
	if !found {
		return nil
	}
	_, rest, _ = strings.Cut(rest, "```\n")
	block, _, _ := strings.Cut(rest, "```")
	for line := range strings.Lines(block) {
		if name, _, _ := strings.Cut(line, " "); name != "" && name != "\n" {
			files = append(files, strings.TrimSpace(name)+".go")
		}
	}
	return files
}

// callsBetween returns how many pairs of functions in different files call each other, and
// the pairs that go upward.
func callsBetween(t *testing.T, imports exportImporter, dir string, order []string) (total int, up []string) {
	t.Helper()
	fset := imports.fset
	var files []*ast.File
	for _, name := range productFiles(t, dir) {
		if match, err := build.Default.MatchFile(dir, name); !match || err != nil {
			continue // a file of another system, or of race builds
		}
		if !slices.Contains(order, name) {
			t.Fatalf("%s/%s is not in the list of ARCHITECTURE.md", dir, name)
		}
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	conf := types.Config{Importer: imports, Error: func(error) {}} // of the packages that exportImporter leaves out
	self, _ := conf.Check(dir, fset, files, info)
	place := func(pos token.Pos) int {
		return slices.Index(order, filepath.Base(fset.Position(pos).Filename))
	}
	seen := make(map[string]bool)
	for _, f := range files {
		for _, d := range f.Decls {
			caller, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(caller, func(n ast.Node) bool {
				id, _ := n.(*ast.Ident)
				callee, ok := info.Uses[id].(*types.Func)
				if !ok || callee.Pkg() != self {
					return true
				}
				from, to := place(caller.Pos()), place(callee.Pos())
				call := fmt.Sprintf("%s %s calls %s %s", order[from], caller.Name.Name, order[to], callee.FullName())
				if from == to || seen[call] {
					return true
				}
				seen[call] = true
				if total++; from > to {
					up = append(up, call)
				}
				return true
			})
		}
	}
	slices.Sort(up)
	return total, up
}

// exportImporter reads what the compiler has exported of the packages of this tree, of the
// standard library and of golang.org/x. Others stay empty: SQLite alone would take longer to
// compile than all packages here.
type exportImporter struct {
	fset *token.FileSet
	gc   types.Importer
}

func newExportImporter(t *testing.T) exportImporter {
	t.Helper()
	paths := map[string]bool{}
	for pkg := range upwardCalls {
		for _, name := range productFiles(t, pkg) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(pkg, name), nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				if path, _ := strconv.Unquote(i.Path.Value); path != "unsafe" && exported(path) {
					paths[path] = true
				}
			}
		}
	}
	list := exec.Command("go", append([]string{"list", "-export", "-f", "{{.ImportPath}}={{.Export}}"}, slices.Sorted(maps.Keys(paths))...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[path] = file
	}
	fset := token.NewFileSet()
	return exportImporter{fset, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })}
}

func exported(path string) bool {
	host, _, _ := strings.Cut(path, "/")
	return !strings.Contains(host, ".") || host == "golang.org" || strings.HasPrefix(path, module)
}

func (i exportImporter) Import(path string) (*types.Package, error) {
	if exported(path) {
		return i.gc.Import(path)
	}
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// smallFiles is how many product files of fewer than 60 lines a package may have: files for
// another system or build, packages of one short file, and files that were never merged.
// The numbers may only shrink.
var smallFiles = map[string]int{
	"features":          1,
	"internal/ringloop": 2,
	"internal/loghook":  1,
	"internal/ringhook": 1,
	"internal/sys":      3,
	"reactor":           1,
	"ufile":             1,
	"ufile/ufiletest":   7,
	"unet":              1,
	"unet/event":        1,
	"watch/watchtest":   3,
}

// TestSmallFiles counts small files: a reader looks for code in a file about a subject, not
// in a file of one constant.
func TestSmallFiles(t *testing.T) {
	for pkg := range layers {
		if strings.HasPrefix(pkg, "examples") || strings.HasPrefix(pkg, "internal/testing") {
			continue
		}
		var small []string
		dir := filepath.Join("../../..", pkg)
		for _, name := range productFiles(t, dir) {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n < 60 {
				small = append(small, fmt.Sprintf("%s (%d)", name, n))
			}
		}
		if len(small) > smallFiles[pkg] {
			t.Errorf("%s: %d files have fewer than 60 lines, at most %d are allowed: %s", pkg, len(small), smallFiles[pkg], strings.Join(small, ", "))
		}
	}
}

// productFiles returns the names of a package's files without its tests and doc.go.
func productFiles(t *testing.T, dir string) (names []string) {
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if name := filepath.Base(path); name != "doc.go" && !strings.HasSuffix(name, "_test.go") {
			names = append(names, name)
		}
	}
	return names
}
