// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// SQLite's own mptest and speedtest1 are compiled into the driver, and the programs that
// run them use its internal packages. So the tests run in a copy of the driver's module, in
// one workspace with this module, with this VFS instead of one of the driver's.

var torture = map[string]string{ // the VFS of this package, by the driver's VFS that it replaces
	"xts":      NamePrefetch,
	"adiantum": NameGroup,
}

// tortureTree makes the workspace.
func tortureTree(t *testing.T) string {
	t.Helper()
	if !*long {
		t.Skip("takes minutes: only with -long")
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ncruces/go-sqlite3")
	list.Env = append(os.Environ(), "GOWORK=off")
	out, err := list.Output()
	if err != nil {
		t.Skipf("needs the go command and the driver's source: %v", err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "driver"), os.DirFS(strings.TrimSpace(string(out)))); err != nil {
		t.Fatal(err)
	}
	work := "go 1.26.0\nuse (\n\t./driver\n\t" + here + "\n\t" + filepath.Dir(here) + "\n)\n"
	if err := os.WriteFile(filepath.Join(dir, "go.work"), []byte(work), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mptest/mptest_test.go", "speedtest1/speedtest1_test.go"} {
		rewrite(t, filepath.Join(dir, "driver/vfs/tests", name))
	}
	return filepath.Join(dir, "driver")
}

// rewrite replaces the driver's VFSes by this package's.
func rewrite(t *testing.T, path string) {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := string(p)
	s = strings.Replace(s, `_ "github.com/ncruces/go-sqlite3/vfs/xts"`, `_ "github.com/ringside-io/ringside/sqlitevfs"`, 1)
	s = strings.Replace(s, `_ "github.com/ncruces/go-sqlite3/vfs/adiantum"`, "", 1)
	s = regexp.MustCompile(`, needKey: true`).ReplaceAllString(s, "")
	s = regexp.MustCompile(`"\?hexkey=[0-9a-f]*"`).ReplaceAllString(s, `""`)
	// How long a connection waits for a lock: 10 s are short on a busy machine.
	s = strings.Replace(s, `{"mptest", db, script.script}`, `{"mptest", db, script.script, "--timeout", "120000"}`, 1)
	for theirs, ours := range torture {
		s = strings.ReplaceAll(s, `vfs: "`+theirs+`"`, `vfs: "`+ours+`"`)
		s = strings.ReplaceAll(s, `"--vfs", "`+theirs+`"`, `"--vfs", "`+ours+`"`)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
}

func runTorture(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"test"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CI=", "GOWORK="+filepath.Join(filepath.Dir(dir), "go.work"), "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("go test %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestMPTest runs each script in its own process. The processes of a script are goroutines
// there. Some of them still run when the next script begins, and read a variable of the
// program (testenv.TB) that it sets. That is a race of the program with itself, which the
// race detector sometimes reports.
// Promise: sqlitevfs/programs-default-vfs
func TestMPTest(t *testing.T) {
	dir := tortureTree(t)
	exe := filepath.Join(t.TempDir(), "mptest.test")
	runTorture(t, dir, "-race", "-c", "-o", exe, "./vfs/tests/mptest")
	for _, script := range []string{"multiwrite01", "crash01", "config01", "config02"} {
		for _, env := range []string{"xts", "adiantum", "xts_wal", "adiantum_wal"} {
			name := script + "_" + env
			if strings.HasSuffix(env, "wal") && strings.HasPrefix(script, "config") {
				continue // the scripts change the journal mode
			}
			t.Run(name, func(t *testing.T) {
				cmd := exec.Command(exe, "-test.v", "-test.timeout=300s", "-test.run=^Test_mptest$/^"+name+"$")
				cmd.Dir = filepath.Join(dir, "vfs/tests/mptest")
				cmd.Env = append(os.Environ(), "CI=")
				out, err := cmd.CombinedOutput()
				if err != nil || !strings.Contains(string(out), "--- PASS: Test_mptest/"+name) {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

func TestSpeedtest1(t *testing.T) {
	dir := tortureTree(t)
	out := runTorture(t, dir, "-run", "^$", "-bench", "xts|adiantum", "-benchtime", "20x", "./vfs/tests/speedtest1")
	if !strings.Contains(out, "ok") {
		t.Error(out)
	}
	t.Log(out)
}
