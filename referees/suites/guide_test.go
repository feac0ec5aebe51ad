// SPDX-License-Identifier: MIT

//go:build linux

package suites

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuideLines: the lines of docs/guide-http.md for other libraries stand in the programs of testdata/guide, and these
// compile with the libraries of its go.mod, which is mod.txt so that the directory is no module of this tree.
func TestGuideLines(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide-http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(guide), "\n| library | line |\n")
	table, _, ok := strings.Cut(table, "\n\n")
	if !ok {
		t.Fatal("docs/guide-http.md has no table of libraries")
	}
	var programs strings.Builder
	files, _ := filepath.Glob("testdata/guide/*/*.go")
	for _, name := range files {
		p, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		programs.Write(p)
	}
	for row := range strings.Lines(table) {
		_, line, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			if !strings.Contains(programs.String(), code[1]) {
				t.Errorf("no program has %s", code[1])
			}
		}
	}
	if os.Getenv("RINGSIDE_REFEREES") != "all" {
		t.Skip("compiles the libraries: needs RINGSIDE_REFEREES=all, as make referees sets it")
	}
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	script := `cp -r testdata/guide/. "$1"; cd "$1"; mv mod.txt go.mod; mv sum.txt go.sum
go mod edit -replace "github.com/ringside-io/ringside=$2"; go vet ./...`
	sh := exec.Command("sh", "-eu", "-c", script, "sh", at, dir)
	sh.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
