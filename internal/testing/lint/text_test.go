// SPDX-License-Identifier: MIT

package lint

import (
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

// forbidden are texts that no file of the repository may contain, each with the reason. The
// patterns are split so that this file does not match itself, and begin with a literal, which
// is found quickly.
var forbidden = []struct {
	pattern *regexp.Regexp
	files   string // glob of the base name
	why     string
	but     string // a file that may contain it and gives the reason
}{
	{regexp.MustCompile(`\n//go:` + `linkname`), "*.go", "the runtime's private functions change without notice", ""},
	{regexp.MustCompile(`\n//go:` + `norace`), "*.go", "the race detector must see everything", "internal/testing/faultsweep/seeded_syscalls_linux_test.go"},
	{regexp.MustCompile(`\nimport ` + `"C"`), "*.go", "no cgo", ""},
	{regexp.MustCompile(`TO` + `DO`), "*.go", "finish it or write an issue", ""},
	{regexp.MustCompile(`FIX` + `ME`), "*.go", "finish it or write an issue", ""},
	{regexp.MustCompile(`\.Skip(\(\)|Now` + `\()`), "*_test.go", "a skip names the missing feature", ""},
}

func TestNothingForbiddenIsWritten(t *testing.T) {
	ringtest.NeedTree(t)
	eachFile(t, func(name string, text string) {
		for _, f := range forbidden {
			if ok, _ := filepath.Match(f.files, filepath.Base(name)); ok && name != f.but && f.pattern.MatchString(text) {
				t.Errorf("%s contains %v: %s", name, f.pattern, f.why)
			}
		}
	})
}

func TestGoFilesNameTheLicence(t *testing.T) {
	ringtest.NeedTree(t)
	eachFile(t, func(name, text string) {
		if filepath.Ext(name) == ".go" && !strings.HasPrefix(text, "// SPDX-License-Identifier: MIT\n") {
			t.Errorf("%s does not begin with its SPDX line", name)
		}
	})
}

// link is a Markdown link: the path of its target, and the fragment.
var link = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)

// TestLinksLeadSomewhere checks that links between pages and files of this tree lead to an
// existing file and, with a fragment, to a heading of that page.
func TestLinksLeadSomewhere(t *testing.T) {
	ringtest.NeedTree(t)
	pages := make(map[string]string)
	eachFile(t, func(name, text string) {
		if filepath.Ext(name) == ".md" {
			pages[name] = text
		}
	})
	for name, text := range pages {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := name
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(filepath.Join("../../..", target)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
			if page, ok := pages[target]; ok && m[2] != "" && !slices.Contains(anchors(page), m[2]) {
				t.Errorf("%s links to %s#%s, which is no heading there", name, m[1], m[2])
			}
		}
	}
}

// noAnchor are the characters of a heading that its anchor lacks.
var noAnchor = regexp.MustCompile(`[^\pL\pN_ -]`)

// anchors returns the fragments that lead to the headings of a page, as GitHub derives them.
func anchors(page string) (out []string) {
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		marks, heading, ok := strings.Cut(line, " ")
		if !ok || code || strings.Trim(marks, "#") != "" {
			continue
		}
		text := noAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
		out = append(out, strings.ReplaceAll(text, " ", "-"))
	}
	return out
}

// TestReportsWhether: a comment says that a function "reports whether" only if it returns a bool.
func TestReportsWhether(t *testing.T) {
	ringtest.NeedTree(t)
	eachFile(t, func(name, text string) {
		if filepath.Ext(name) != ".go" || !strings.Contains(text, " reports whether") {
			return
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Doc.Text(), fn.Name.Name+" reports whether") {
				continue
			}
			var results []*ast.Field
			if fn.Type.Results != nil {
				results = fn.Type.Results.List
			}
			if !slices.ContainsFunc(results, func(r *ast.Field) bool { id, ok := r.Type.(*ast.Ident); return ok && id.Name == "bool" }) {
				t.Errorf("%s: %s returns no bool: write what it returns", fset.Position(fn.Pos()), fn.Name.Name)
			}
		}
	})
}

// README.md must be readable in three minutes.
func TestREADMEIsOnePage(t *testing.T) {
	ringtest.NeedTree(t)
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	words, lines := len(strings.Fields(string(text))), strings.Count(string(text), "\n")
	if words > 950 || lines > 135 {
		t.Errorf("README.md has %d words in %d lines, want at most 950 in 135", words, lines)
	}
}

// eachFile visits the text files of the repository.
func eachFile(t *testing.T, visit func(name, text string)) {
	t.Helper()
	root := os.DirFS("../../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.Contains(".go.md.sh.mod", filepath.Ext(name)):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		visit(name, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// phrases are wordings that are hard to read, each with the plain one and with how
// often comments and pages still have it. The counts may only fall: lower them when
// a phrase is gone from a file.
var phrases = []struct {
	part    string // of each match, in lower case; a search for it is much faster than the pattern
	pattern *regexp.Regexp
	instead string
	left    int
}{
	{"body", regexp.MustCompile(`(?i)\b(no|some|any|every)body\b`), "name the caller, the reader, the kernel", 0},
	{"whoever", regexp.MustCompile(`(?i)\bwhoever\b`), "name the caller, the reader, the kernel", 0},
	{" who", regexp.MustCompile(`(?i)\b(to|of|for|from|by|than|with|those|all|them|one) who\b`), "name the noun", 0},
	{"who ", regexp.MustCompile(`(?:^|[.;:] )Who [a-z]+s\b[^?]*$`), "name the noun", 0},
	{" whether", regexp.MustCompile(`(?i)\bsay(s|ing)? whether\b`), "reports whether", 0},
	{"tells ", regexp.MustCompile(`(?i)\btells (if|whether)\b`), "reports whether", 0},
	{"measured best", regexp.MustCompile(`(?i)\bmeasured best\b`), "say what is faster", 0},
	{" is what", regexp.MustCompile(`(?i)\b(that|this|which) is what\b`), "name the noun", 0},
	{"what ", regexp.MustCompile(`(?i)\bwhat (is|was|are) \w+ (is|was|are)\b`), "name the noun", 0},
	{"what ", regexp.MustCompile(`(?i)\bwhat (it|they) (says?|tells?)\b|\bwhat (is|was) over\b`), "name the noun", 0},
	{" of", regexp.MustCompile(`(?i)\b(told|tells) of\b`), "reports", 0},
	{"fate", regexp.MustCompile(`(?i)\bfates?\b`), "say result", 0},
	{"plant", regexp.MustCompile(`(?i)\bplant(s|ed|ing)?\b`), "seeded, for a bug of a test", 0},
	{"for want of", regexp.MustCompile(`(?i)\bfor want of\b`), "because there is no", 0},
}

// TestPlainEnglish counts the phrases in comments and pages.
func TestPlainEnglish(t *testing.T) {
	ringtest.NeedTree(t)
	found := make([][]string, len(phrases))
	eachFile(t, func(name, text string) {
		if ext := filepath.Ext(name); ext != ".go" && ext != ".md" {
			return
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			if filepath.Ext(name) == ".go" {
				var ok bool
				if _, line, ok = strings.Cut(line, "// "); !ok {
					continue
				}
			}
			line = strings.TrimSpace(line)
			lower := strings.ToLower(line)
			for i, p := range phrases {
				if strings.Contains(lower, p.part) && p.pattern.MatchString(line) {
					found[i] = append(found[i], fmt.Sprintf("%s:%d: %s", name, n, line))
				}
			}
		}
	})
	for i, p := range phrases {
		if n := len(found[i]); n > p.left {
			t.Errorf("%d lines, %d recorded, match %v: %s\n%s", n, p.left, p.pattern, p.instead, strings.Join(found[i], "\n"))
		}
	}
}
