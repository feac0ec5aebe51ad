// SPDX-License-Identifier: MIT

package overlay

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pkg is a package of the standard library while it is patched.
type pkg struct {
	b     *builder
	path  string
	fset  *token.FileSet
	files []*file
}

// file is a source file and the insertions and replacements for it.
type file struct {
	path  string // below GOROOT/src
	src   []byte
	ast   *ast.File
	edits []edit
}

type edit struct {
	from, to int
	text     string
}

// open parses the files of a package that are built for the target, without tests.
func (b *builder) open(path string) (*pkg, error) {
	p := &pkg{b: b, path: path, fset: token.NewFileSet()}
	dir := filepath.Join(b.tools.GOROOT, "src", path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	target := build.Default
	target.GOOS, target.GOARCH, target.CgoEnabled = "linux", b.tools.GOARCH, true
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if ok, err := target.MatchFile(dir, name); err != nil || !ok {
			continue
		}
		f := &file{path: filepath.Join(path, name)}
		if f.src, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
		if f.ast, err = parser.ParseFile(p.fset, f.path, f.src, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
	}
	return p, nil
}

// write writes the edited files.
func (p *pkg) write() error {
	for _, f := range p.files {
		if len(f.edits) == 0 {
			continue
		}
		slices.SortStableFunc(f.edits, func(a, b edit) int { return a.from - b.from })
		var out bytes.Buffer
		at := 0
		for _, e := range f.edits {
			out.Write(f.src[at:e.from])
			out.WriteString(e.text)
			at = e.to
		}
		out.Write(f.src[at:])
		text, err := format.Source(out.Bytes())
		if err != nil {
			return fmt.Errorf("%s after the patch: %w", f.path, err)
		}
		if err := p.b.add(f.path, text); err != nil {
			return err
		}
	}
	return nil
}

func (p *pkg) offset(pos token.Pos) int { return p.fset.Position(pos).Offset }

func (p *pkg) text(f *file, n ast.Node) string {
	return string(f.src[p.offset(n.Pos()):p.offset(n.End())])
}

func (p *pkg) insert(f *file, at token.Pos, text string) {
	f.edits = append(f.edits, edit{p.offset(at), p.offset(at), text})
}

// addField adds a field at the end of a struct.
func (p *pkg) addField(typ, field string) error {
	for _, f := range p.files {
		for _, d := range f.ast.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, s := range gen.Specs {
				ts := s.(*ast.TypeSpec)
				if st, ok := ts.Type.(*ast.StructType); ok && ts.Name.Name == typ {
					p.insert(f, st.Fields.Closing, "\n"+field+"\n")
					return nil
				}
			}
		}
	}
	return fmt.Errorf("%s: no structure %s", p.path, typ)
}

// keyLiterals adds the field's name to composite literals of a type without field names.
func (p *pkg) keyLiterals(typ, field string) {
	for _, f := range p.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok && isIdent(lit.Type, typ) && len(lit.Elts) == 1 {
				if _, keyed := lit.Elts[0].(*ast.KeyValueExpr); !keyed {
					p.insert(f, lit.Elts[0].Pos(), field+": ")
				}
			}
			return true
		})
	}
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// wrapLiterals passes each &T{...} to a function.
func (p *pkg) wrapLiterals(typ, fn string) error {
	found := false
	for _, f := range p.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			u, ok := n.(*ast.UnaryExpr)
			if !ok || u.Op != token.AND {
				return true
			}
			if lit, ok := u.X.(*ast.CompositeLit); ok && isIdent(lit.Type, typ) {
				p.insert(f, u.Pos(), fn+"(")
				p.insert(f, u.End(), ")")
				found = true
			}
			return true
		})
	}
	if !found {
		return fmt.Errorf("%s: no literal &%s{}", p.path, typ)
	}
	return nil
}

// functions calls f for each function and method with a body.
func (p *pkg) functions(do func(f *file, recv string, fn *ast.FuncDecl)) {
	for _, f := range p.files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			recv := ""
			if fn.Recv != nil {
				star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
				if !ok || len(fn.Recv.List[0].Names) == 0 {
					continue
				}
				if id, ok := star.X.(*ast.Ident); ok {
					recv = id.Name
				}
				if recv == "" {
					continue
				}
			}
			do(f, recv, fn)
		}
	}
}

// function finds a function or method by name; recv is "" for functions.
func (p *pkg) function(recv, name string, do func(f *file, fn *ast.FuncDecl)) error {
	found := false
	p.functions(func(f *file, r string, fn *ast.FuncDecl) {
		if r == recv && fn.Name.Name == name {
			found = true
			do(f, fn)
		}
	})
	if !found {
		return fmt.Errorf("%s: no function %s.%s", p.path, recv, name)
	}
	return nil
}

// begin inserts statements at the beginning of a function.
func (p *pkg) begin(recv, name, text string) error {
	return p.function(recv, name, func(f *file, fn *ast.FuncDecl) { p.insert(f, fn.Body.Lbrace+1, text+"\n") })
}

// after inserts statements after the text of others in a function.
func (p *pkg) after(recv, name, others, text string) error {
	found := false
	err := p.function(recv, name, func(f *file, fn *ast.FuncDecl) {
		from, to := p.offset(fn.Body.Pos()), p.offset(fn.Body.End())
		if i := bytes.Index(f.src[from:to], []byte(others)); i >= 0 {
			at := from + i + len(others)
			f.edits, found = append(f.edits, edit{at, at, text}), true
		}
	})
	if err == nil && !found {
		err = fmt.Errorf("%s: %s.%s: no %q", p.path, recv, name, others)
	}
	return err
}

// wrapReturns passes the result of a function with one result to another function.
func (p *pkg) wrapReturns(name, wrap string) error {
	return p.function("", name, func(f *file, fn *ast.FuncDecl) {
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == 1 {
				p.insert(f, r.Results[0].Pos(), wrap+"(")
				p.insert(f, r.Results[0].End(), ")")
			}
			return true
		})
	})
}

// split renames a function to Std… and adds one with the old name that runs the given statements
// and then calls it.
func (p *pkg) split(name, first string) error {
	return p.function("", name, func(f *file, fn *ast.FuncDecl) {
		signature := string(f.src[p.offset(fn.Type.Params.Pos()):p.offset(fn.Body.Lbrace)])
		front := "func " + name + signature + "{\n" + first + "\nreturn Std" + name + "(" + strings.Join(paramNames(fn), ", ") + ")\n}\n\n"
		p.insert(f, fn.Pos(), front)
		p.insert(f, fn.Name.Pos(), "Std")
	})
}

func paramNames(fn *ast.FuncDecl) (names []string) {
	for _, field := range fn.Type.Params.List {
		for _, n := range field.Names {
			names = append(names, n.Name)
		}
	}
	return names
}

// forward makes each exported method of the types call the same method of alt, if the receiver's
// alt has it. valid is the condition under which the receiver may be accessed, with R for its name.
func (p *pkg) forward(types []string, valid string, except ...string) {
	p.functions(func(f *file, recv string, fn *ast.FuncDecl) {
		if !slices.Contains(types, recv) || !fn.Name.IsExported() || slices.Contains(except, recv+"."+fn.Name.Name) {
			return
		}
		r := fn.Recv.List[0].Names[0].Name
		signature := string(f.src[p.offset(fn.Type.Params.Pos()):p.offset(fn.Body.Lbrace)])
		before, args := p.arguments(f, fn)
		call := "a." + fn.Name.Name + "(" + strings.Join(args, ", ") + ")"
		if fn.Type.Results != nil {
			call = "return " + call
		} else {
			call += "\nreturn"
		}
		p.insert(f, fn.Body.Lbrace+1, fmt.Sprintf("\nif %s && %s.alt != nil {\nif a, ok := %s.alt.(interface{ %s%s }); ok {\n%s%s\n}\n}\n",
			strings.ReplaceAll(valid, "R", r), r, r, fn.Name.Name, strings.TrimSpace(signature), before, call))
	})
}

// arguments returns the parameters as they are forwarded: a reader or writer as the value behind
// it. The statements before the call prepare a reader.
func (p *pkg) arguments(f *file, fn *ast.FuncDecl) (before string, args []string) {
	for _, field := range fn.Type.Params.List {
		for _, n := range field.Names {
			switch p.text(f, field.Type) {
			case "io.Reader":
				before += "reader, restore := ringsideReader(" + n.Name + ")\ndefer restore()\n"
				args = append(args, "reader")
			case "io.Writer":
				args = append(args, "ringsideWriter("+n.Name+")")
			default:
				args = append(args, n.Name)
			}
		}
	}
	return before, args
}
