// SPDX-License-Identifier: MIT

package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// forbidden are things that no file of the repository may contain, each with
// the reason. The patterns are split so that this file does not match itself.
var forbidden = []struct {
	pattern *regexp.Regexp
	files   string // glob of the base name
	why     string
	but     string // a file that may, and says why
}{
	{regexp.MustCompile(`(?m)^//go:` + `linkname`), "*.go", "the runtime's private functions change without notice", ""},
	{regexp.MustCompile(`(?m)^//go:` + `norace`), "*.go", "the race detector must see everything", "internal/testing/faultsweep/planted_door_linux_test.go"},
	{regexp.MustCompile(`(?m)^import ` + `"C"`), "*.go", "no cgo", ""},
	{regexp.MustCompile(`TO` + `DO|FIX` + `ME`), "*.go", "finish it or write an issue", ""},
	{regexp.MustCompile(`(?i)t\.Skip\(\)|t\.SkipNow` + `\(`), "*_test.go", "a skip names the missing feature", ""},
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

// link is a Markdown link; its first group is the target without a fragment.
var link = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)

// TestLinksLeadSomewhere checks the links of all pages to files of this tree.
func TestLinksLeadSomewhere(t *testing.T) {
	ringtest.NeedTree(t)
	eachFile(t, func(name, text string) {
		if filepath.Ext(name) != ".md" {
			return
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join("../../..", filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
	})
}

// The first page is read in three minutes.
func TestREADMEIsOnePage(t *testing.T) {
	ringtest.NeedTree(t)
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if words := len(strings.Fields(string(text))); words > 1000 {
		t.Errorf("README.md has %d words", words)
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
