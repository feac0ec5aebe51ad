// SPDX-License-Identifier: MIT

package lint

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestGuaranteesNameRealTests reads docs/guarantees.md. It fails when a named test does not
// exist, when a promise has no test, and when a package's section has no promise or does
// not list what is not promised.
func TestGuaranteesNameRealTests(t *testing.T) {
	ringtest.NeedTree(t)
	text, err := os.ReadFile("../../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z0-9/-]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")
	functions := map[string]map[string]bool{}
	promises, _, _ := strings.Cut(string(text), "\n## What was tried on purpose\n")
	sections := strings.Split(promises, "\n## ")[1:]
	for _, section := range sections {
		title, body, _ := strings.Cut(section, "\n")
		rows := 0
		for line := range strings.Lines(body) {
			cells := strings.Split(strings.TrimSpace(line), "|")
			if len(cells) != 5 || cells[1] == "---" || cells[1] == " promised " {
				continue
			}
			rows++
			tests := names.FindAllStringSubmatch(cells[3], -1)
			if len(tests) == 0 {
				t.Errorf("%s: no test shows that%s", title, cells[1])
			}
			for _, name := range tests {
				if functions[name[1]] == nil {
					functions[name[1]] = functionsOf(t, "../../../"+name[1])
				}
				if !functions[name[1]][name[2]] {
					t.Errorf("%s: %s.%s does not exist", title, name[1], name[2])
				}
			}
		}
		if rows == 0 || !strings.Contains(body, "\nNot promised:") {
			t.Errorf("%s: %d promises, or no line \"Not promised:\"", title, rows)
		}
	}
	if len(sections) < 9 {
		t.Errorf("docs/guarantees.md has %d sections, want at least 9", len(sections))
	}
}
