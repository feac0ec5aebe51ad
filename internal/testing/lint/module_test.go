// SPDX-License-Identifier: MIT

package lint

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestModuleOfYourOwn runs the lines with which a page adds modules to a program: after
// them, in a module next to a clone, the page's first program has all its imports. Another
// test builds and runs the programs.
func TestModuleOfYourOwn(t *testing.T) {
	ringtest.NeedTree(t)
	if testing.Short() || runtime.GOOS == "windows" {
		return // it takes seconds, and the lines need a shell
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for page, heading := range map[string]string{
		"README.md":             "## Install\n",
		"docs/guide-sqlite.md":  "### In a module of your own\n",
		"docs/guide-replica.md": "### In a module of your own\n",
		"docs/metrics.md":       "### In a module of your own\n",
	} {
		t.Run(page, func(t *testing.T) { moduleOfYourOwn(t, root, page, heading) })
	}
}

func moduleOfYourOwn(t *testing.T, root, page, heading string) {
	text, err := fs.ReadFile(os.DirFS(root), page)
	if err != nil {
		t.Fatal(err)
	}
	programs, _ := snippets(string(text))
	_, section, ok := strings.Cut(string(text), heading)
	block := fence.FindStringSubmatch(section)
	if !ok || len(programs) == 0 || block == nil || block[1] != "sh" {
		t.Fatalf("%s has %d programs, and no lines that add its modules", page, len(programs))
	}
	var lines []string
	for line := range strings.Lines(block[2]) {
		if !strings.HasPrefix(line, "git clone ") { // The link below replaces the clone.
			lines = append(lines, line)
		}
	}
	clone := t.TempDir()
	if err := os.Symlink(root, filepath.Join(clone, "ringside")); err != nil {
		t.Fatal(err)
	}
	yours := filepath.Join(clone, "yours")
	if err := os.Mkdir(yours, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(yours, "main.go"), []byte(programs[0].text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	script := "set -e\ngo mod init example.com/yours\n" + strings.Join(lines, "") + "go list -deps . >/dev/null\n"
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = yours
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off", "GOSUMDB=off")
	out, err := cmd.CombinedOutput()
	// The only dependency of the core is in the module cache. The lines must name all
	// modules of the clone.
	own := page == "README.md" || regexp.MustCompile(`ringside-io/ringside\S*: module lookup disabled`).Match(out)
	if !own && strings.Contains(string(out), "GOPROXY=off") {
		t.Skipf("needs modules that the module cache lacks: run these lines once with a network\n%s", out)
	}
	if err != nil {
		t.Errorf("%s%v\n%s", script, err, out)
	}
}
