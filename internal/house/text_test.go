// SPDX-License-Identifier: MIT

package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/ringtest"
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
	{regexp.MustCompile(`(?m)^//go:` + `norace`), "*.go", "the race detector must see everything", "internal/sweep/planted_door_linux_test.go"},
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

// eachFile visits the text files of the repository.
func eachFile(t *testing.T, visit func(name, text string)) {
	t.Helper()
	root := os.DirFS("../..")
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
