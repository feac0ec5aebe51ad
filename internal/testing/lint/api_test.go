// SPDX-License-Identifier: MIT

package lint

import (
	"bytes"
	"flag"
	"go/ast"
	"go/build"
	"go/parser"
	"go/printer"
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

// public are the packages that a user may import; surfaces are the systems for which their
// exported surface is recorded.
var (
	public = []string{"appendlog", "features", "metrics", "metrics/otelmetric", "metrics/prom", "reactor", "sqlitevfs", "sqlitevfs/backup", "sqlitevfs/backup/s3", "ufile", "ufile/ufiletest",
		"unet", "unet/event", "unet/event/framing", "unet/ktls", "uring", "watch", "watch/watchtest"}
	surfaces = []string{"linux", "darwin", "windows"}
)

var update = flag.Bool("update", false, "rewrite testdata/api")

const accept = `
The change removes the lines with - and adds the lines with +. Names on lines marked ~ are
experimental (docs/stability.md). Other names may be added, but not changed or removed until
the next minor version. If the change is intended, name it in CHANGELOG.md and accept it:

	go test ./internal/testing/lint -run TestAPI -update`

// TestAPI compares the exported surface of each public package with the committed file, so
// that no surface changes by accident.
func TestAPI(t *testing.T) {
	ringtest.NeedTree(t)
	shaky := experimental(t)
	for _, pkg := range public {
		got := strings.Join(surface(t, pkg, shaky), "\n") + "\n"
		file := filepath.Join("testdata", "api", strings.ReplaceAll(pkg, "/", "_")+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		if diff := difference(string(want), got); diff != "" {
			t.Errorf("the exported surface of %s has changed:\n%s%s", pkg, diff, accept)
		}
	}
	for name, found := range shaky {
		if !found {
			t.Errorf("docs/stability.md calls %s experimental, which does not exist", name)
		}
	}
}

// difference returns the lines that only one of two texts has.
func difference(was, is string) string {
	var b strings.Builder
	for _, side := range []struct{ mark, in, out string }{{"- ", was, is}, {"+ ", is, was}} {
		other := strings.Split(side.out, "\n")
		for line := range strings.SplitSeq(side.in, "\n") {
			if !slices.Contains(other, line) {
				b.WriteString(side.mark + line + "\n")
			}
		}
	}
	return b.String()
}

var experimentalName = regexp.MustCompile("`([a-z]+(?:/[a-z]+)?(?:\\.[A-Z]\\w*(?:\\.[A-Z]\\w*)?)?)`")

// experimental returns the names that docs/stability.md lists as experimental:
// `package`, `package.Name` or `package.Type.Member`.
func experimental(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("../../../docs/stability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(b), "\n## Experimental\n")
	if !ok {
		t.Fatal("docs/stability.md has no section Experimental")
	}
	list, _, _ = strings.Cut(list, "\n## ")
	list = strings.ReplaceAll(list, "\n  ", " ") // lines that continue a bullet
	names := map[string]bool{}
	for line := range strings.Lines(list) {
		what, _, bullet := strings.Cut(strings.TrimPrefix(line, "- "), ": ")
		if !bullet || !strings.HasPrefix(line, "- ") {
			continue
		}
		for _, m := range experimentalName.FindAllStringSubmatch(what, -1) {
			names[m[1]] = false
		}
	}
	if len(names) == 0 {
		t.Fatal("docs/stability.md lists nothing as experimental")
	}
	return names
}

// surface lists the exports of a package, one on each line. An export that not all systems
// have is followed by the systems that do; an experimental one begins with ~.
func surface(t *testing.T, pkg string, shaky map[string]bool) []string {
	t.Helper()
	on := map[string][]string{}   // systems by line
	name := map[string][]string{} // the line's identifier, from the outside in
	for _, goos := range surfaces {
		l := lister{names: map[string][]string{}, methods: map[string][]*ast.FuncDecl{}, types: map[string]*ast.TypeSpec{}}
		l.parse(t, filepath.Join("..", "..", "..", filepath.FromSlash(pkg)), goos)
		l.list()
		for line := range l.names {
			on[line] = append(on[line], goos)
		}
		maps.Copy(name, l.names)
	}
	var lines []string
	for _, line := range slices.Sorted(maps.Keys(on)) {
		mark := "  "
		for n := range len(name[line]) + 1 {
			id := strings.Join(append([]string{pkg}, name[line][:n]...), ".")
			if _, ok := shaky[id]; ok {
				shaky[id], mark = true, "~ "
			}
		}
		if len(on[line]) < len(surfaces) {
			line += " // " + strings.Join(on[line], ", ")
		}
		lines = append(lines, mark+line)
	}
	return lines
}

// lister reads the declarations of one package.
type lister struct {
	fset    *token.FileSet
	files   []*ast.File
	types   map[string]*ast.TypeSpec
	methods map[string][]*ast.FuncDecl // by type, without the pointer
	names   map[string][]string        // by line
}

func (l *lister) parse(t *testing.T, dir, goos string) {
	t.Helper()
	l.fset = token.NewFileSet()
	ctx := build.Default
	ctx.GOOS, ctx.GOARCH, ctx.BuildTags, ctx.CgoEnabled = goos, "amd64", nil, false
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		if ok, err := ctx.MatchFile(dir, e.Name()); err != nil || !ok {
			continue
		}
		f, err := parser.ParseFile(l.fset, filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		l.files = append(l.files, f)
	}
}

func (l *lister) list() {
	for _, f := range l.files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				l.function(d)
			case *ast.GenDecl:
				l.group(d)
			}
		}
	}
	for name, spec := range l.types {
		if ast.IsExported(name) {
			l.typ(spec)
			l.methodsOf(name, name, map[string]bool{})
		}
	}
}

func (l *lister) add(line string, name ...string) { l.names[line] = name }

func (l *lister) function(d *ast.FuncDecl) {
	if d.Recv != nil {
		of := d.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		base := l.text(of)
		l.methods[base] = append(l.methods[base], d)
		return
	}
	if d.Name.IsExported() {
		l.add("func "+d.Name.Name+l.signature(d.Type), d.Name.Name)
	}
}

// group lists constants and variables, and records their types. In a group of constants,
// one without its own type has the type of the constant before it.
func (l *lister) group(d *ast.GenDecl) {
	var typ string
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			l.types[s.Name.Name] = s
		case *ast.ValueSpec:
			switch {
			case s.Type != nil:
				typ = " " + l.text(s.Type)
			case len(s.Values) > 0:
				typ = ""
			}
			for _, n := range s.Names {
				if n.IsExported() {
					l.add(d.Tok.String()+" "+n.Name+typ, n.Name)
				}
			}
		}
	}
}

func (l *lister) typ(s *ast.TypeSpec) {
	name := s.Name.Name
	equals := " "
	if s.Assign.IsValid() {
		equals = " = "
	}
	switch u := s.Type.(type) {
	case *ast.StructType:
		l.add("type "+name+equals+"struct", name)
		for _, f := range u.Fields.List {
			names := f.Names
			if len(names) == 0 { // embedded
				names = []*ast.Ident{embedded(f.Type)}
			}
			tag := ""
			if f.Tag != nil {
				tag = " " + f.Tag.Value
			}
			for _, n := range names {
				if n.IsExported() {
					l.add("field "+name+"."+n.Name+" "+l.text(f.Type)+tag, name, n.Name)
				}
			}
		}
	case *ast.InterfaceType:
		l.add("type "+name+equals+"interface", name)
		for _, f := range u.Methods.List {
			if len(f.Names) == 0 {
				l.add("method "+name+" "+l.text(f.Type), name)
			}
			for _, n := range f.Names {
				l.add("method "+name+"."+n.Name+l.signature(f.Type.(*ast.FuncType)), name, n.Name)
			}
		}
	default:
		l.add("type "+name+equals+l.text(s.Type), name)
	}
}

// embedded returns the name of an embedded field.
func embedded(x ast.Expr) *ast.Ident {
	switch x := x.(type) {
	case *ast.StarExpr:
		return embedded(x.X)
	case *ast.SelectorExpr:
		return x.Sel
	case *ast.Ident:
		return x
	}
	return ast.NewIdent("_")
}

// methodsOf lists the methods of a type, and the methods of unexported types of this
// package that it embeds.
func (l *lister) methodsOf(name, of string, has map[string]bool) {
	for _, d := range l.methods[of] {
		if m := d.Name.Name; d.Name.IsExported() && !has[m] {
			has[m] = true
			star := ""
			if _, ok := d.Recv.List[0].Type.(*ast.StarExpr); ok {
				star = "*"
			}
			l.add("method ("+star+name+") "+m+l.signature(d.Type), name, m)
		}
	}
	spec := l.types[of]
	if spec == nil {
		return
	}
	if s, ok := spec.Type.(*ast.StructType); ok {
		for _, f := range s.Fields.List {
			if n := embeddedHere(f); n != "" {
				l.methodsOf(name, n, has)
			}
		}
	}
}

// embeddedHere returns the name of the unexported type of this package that a field embeds,
// or "".
func embeddedHere(f *ast.Field) string {
	x := f.Type
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	if id, ok := x.(*ast.Ident); ok && len(f.Names) == 0 && !id.IsExported() {
		return id.Name
	}
	return ""
}

func (l *lister) signature(f *ast.FuncType) string {
	return strings.TrimPrefix(l.text(&ast.FuncType{Params: f.Params, Results: f.Results}), "func")
}

var space = regexp.MustCompile(`\s+`)

func (l *lister) text(n ast.Node) string {
	var b bytes.Buffer
	_ = printer.Fprint(&b, l.fset, n) // into memory
	return space.ReplaceAllString(b.String(), " ")
}
