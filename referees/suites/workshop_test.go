// SPDX-License-Identifier: MIT

//go:build linux

package suites

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/overlay"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// repo is the root of this repository.
var repo, _ = filepath.Abs(filepath.Join("..", ".."))

// scratch holds the overlays, copies of modules and test binaries.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "referees"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(scratch)
		code := m.Run()
		for _, c := range totals {
			fmt.Printf("referee %s: %d passed, %d failed, %d expected differences\n", c.suite, c.passed, c.failed, c.expected)
		}
		return code
	}())
}

var (
	tools = sync.OnceValues(func() (*overlay.Toolchain, error) { return overlay.Select(repo, filepath.Join(scratch, "overlay")) })

	// forbid is a command that runs another one without io_uring, and brings up the loopback
	// interface of a new network namespace.
	forbid = sync.OnceValues(func() (string, error) {
		bin := filepath.Join(scratch, "forbid")
		cmd := exec.Command("go", "build", "-o", bin, "./internal/testing/seccomp")
		cmd.Dir, cmd.Env = repo, append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
		return bin, nil
	})
)

// workshop builds the test binaries of a suite.
type workshop struct {
	t     *testing.T
	suite suite
	tools *overlay.Toolchain
	dir   string          // of the module
	used  map[string]bool // the modes in which the tested package was used
}

func newWorkshop(t *testing.T, s suite) *workshop {
	t.Helper()
	tools, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	w := &workshop{t: t, suite: s, tools: tools, dir: filepath.Join(tools.GOROOT, "src"), used: map[string]bool{}}
	if s.module != "" {
		w.copyModule()
	}
	return w
}

// copyModule copies a module from the cache, which is read-only.
func (w *workshop) copyModule() {
	cmd := exec.Command("go", "mod", "download", "-json", w.suite.module)
	cmd.Dir, cmd.Env = scratch, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var m struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &m); err != nil || jsonErr != nil || m.Error != "" {
		w.t.Fatalf("%v: %v %v %s", cmd, err, jsonErr, m.Error)
	}
	w.dir = filepath.Join(scratch, strings.NewReplacer("/", "_", "@", "_").Replace(w.suite.module))
	if _, err := os.Stat(w.dir); err == nil {
		return
	}
	if err := os.CopyFS(w.dir, os.DirFS(m.Dir)); err != nil {
		w.t.Fatal(err)
	}
	err = filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, 0o755)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.dropLocal()
}

// dropLocal removes replacements by directories that the module has beside itself in its repository.
func (w *workshop) dropLocal() {
	out, err := w.command(w.dir, "mod", "edit", "-json").Output()
	var mod struct {
		Replace []struct{ Old, New struct{ Path string } }
	}
	if jsonErr := json.Unmarshal(out, &mod); err != nil || jsonErr != nil {
		w.t.Fatalf("go mod edit: %v %v", err, jsonErr)
	}
	args := []string{"mod", "edit"}
	for _, r := range mod.Replace {
		if strings.HasPrefix(r.New.Path, "../") {
			args = append(args, "-dropreplace="+r.Old.Path)
		}
	}
	if len(args) > 2 {
		if out, err := w.command(w.dir, args...).CombinedOutput(); err != nil {
			w.t.Fatalf("go mod edit: %v\n%s", err, out)
		}
	}
}

// command returns a go command for the module, or for the standard library.
func (w *workshop) command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	if args[0] == "test" {
		files := w.suite.judges == "ufile"
		o := overlay.Options{Files: !files, Sockets: !files, Fronts: files}
		var err error
		if cmd, err = w.tools.Command(filepath.Join(scratch, "overlay"), o, "test", args[1:]); err != nil {
			w.t.Fatal(err)
		}
	}
	flags := "GOFLAGS=-buildvcs=false"
	if w.suite.module != "" {
		flags += " -mod=mod"
	}
	cmd.Dir, cmd.Env = dir, append(os.Environ(), flags, "GOWORK=off")
	return cmd
}

// binary is the test binary of a package.
type binary struct {
	w             *workshop
	pkg, dir, exe string
	lastOutput    map[string]*strings.Builder // of each test, in the last run
	whole         string                      // of the last run
}

// buildAll compiles the tests of packages before any of them runs: with a cold cache that takes minutes,
// which are no part of a limit.
func (w *workshop) buildAll(pkgs []string) (all []*binary) {
	start := time.Now()
	for _, pkg := range pkgs {
		all = append(all, w.build(pkg))
	}
	w.t.Logf("%s: compiled in %.0fs", w.suite.name, time.Since(start).Seconds())
	return all
}

// build compiles the tests of a package, and with them ufile and unet.
func (w *workshop) build(pkg string) *binary {
	w.t.Helper()
	out, err := w.command(w.dir, "list", "-f", "{{.Dir}}\n{{.ImportPath}}", pkg).Output()
	if err != nil {
		w.t.Fatalf("%s: go list: %v", pkg, err)
	}
	at := strings.Split(string(out), "\n")
	b := &binary{w: w, pkg: at[1], dir: at[0], exe: filepath.Join(scratch, strings.ReplaceAll(at[1], "/", "_")+".test")}
	args := []string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", b.exe}
	if os.Getenv("RINGSIDE_REFEREES_RACE") != "" {
		args = append(args, "-race")
	}
	if out, err := w.command(b.dir, append(args, ".")...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v\n%s", pkg, err, out)
	}
	return b
}

// results are the results of each test: "pass", "fail" or "skip".
type results map[string]string

// run runs the tests that match a pattern, or all, in a mode.
func (b *binary) run(mode, pattern string) results {
	t := b.w.t
	t.Helper()
	used := filepath.Join(t.TempDir(), "used")
	cmd := b.command(mode, pattern, used)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	ctx, cancel := context.WithTimeout(context.Background(), b.w.suite.limit+30*time.Second)
	defer cancel()
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	go func() {
		<-ctx.Done()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // and the children that it left running
	}()
	err := cmd.Wait()
	b.whole = out.String()
	if err != nil {
		b.whole += "\n" + err.Error()
	}
	if mode != "std" {
		b.checkUsed(mode, used)
	}
	return b.parse(out.Bytes())
}

// command returns the command that runs the tests in a network namespace of their own.
func (b *binary) command(mode, pattern, used string) *exec.Cmd {
	t := b.w.t
	forbid, err := forbid()
	if err != nil {
		t.Fatal(err)
	}
	errno := "none"
	backend := mode
	switch mode {
	case "std":
		backend = "off"
	case "ring":
		backend = "io_uring"
	case "auto":
		backend = ""
	case "fallback":
		errno, backend = "EPERM", ""
	}
	args := []string{"-errno", errno, "-loopback", "--", b.exe, "-test.v=test2json", "-test.timeout=" + b.w.suite.limit.String()}
	args = append(args, b.w.suite.args...)
	if pattern != "" {
		args = append(args, "-test.run="+pattern)
	}
	cmd := exec.Command(forbid, args...)
	if tasks := os.Getenv("RINGSIDE_REFEREES_TASKS"); tasks != "" {
		cmd = exec.Command("sh", append([]string{"-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, taskGroup(t, tasks), forbid}, args...)...)
	}
	cmd.Dir = b.dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "RINGSIDE_MUST=") })
	cmd.Env = append(cmd.Env, "RINGSIDE_BACKEND="+backend, "RINGSIDE_LOG="+used, "GOTRACEBACK=all", "PWD="+b.dir)
	cmd.SysProcAttr = ownNetwork()
	return cmd
}

// ownNetwork makes a process the first one of a process group and of a network namespace.
func ownNetwork() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// taskGroup makes a cgroup for a run, in which there may be so many tasks.
func taskGroup(t *testing.T, tasks string) (dir string) {
	t.Helper()
	dir = ringtest.NeedTaskGroup(t)
	if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(tasks), 0); err != nil {
		t.Fatal(err)
	}
	return dir
}

// checkUsed records whether the tests used the tested package, and checks that it was in the right
// mode.
func (b *binary) checkUsed(mode, used string) {
	said, _ := os.ReadFile(used)
	for line := range strings.Lines(string(said)) {
		name, backend, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != b.w.suite.judges && b.w.suite.judges != "program" {
			continue
		}
		if ringed := strings.HasPrefix(backend, "io_uring"); ringed != (mode == "ring" || mode == "auto") {
			b.w.t.Errorf("%s %s: %s used %q", b.pkg, mode, name, backend)
		}
		b.w.used[mode] = true
	}
}

// parse parses the output of the tests.
func (b *binary) parse(out []byte) results {
	cmd := exec.Command("go", "tool", "test2json")
	cmd.Stdin = bytes.NewReader(out)
	events, err := cmd.Output()
	if err != nil {
		b.w.t.Fatalf("test2json: %v", err)
	}
	got := results{}
	b.lastOutput = map[string]*strings.Builder{}
	for line := range bytes.Lines(events) {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(line, &e); err != nil {
			b.w.t.Fatalf("test2json: %v", err)
		}
		switch e.Action {
		case "pass", "fail", "skip":
			if e.Test != "" {
				got[e.Test] = e.Action
			}
		case "output":
			if b.lastOutput[e.Test] == nil {
				b.lastOutput[e.Test] = &strings.Builder{}
			}
			b.lastOutput[e.Test].WriteString(e.Output)
		}
	}
	return got
}

// said returns the output of a test in the last run.
func (b *binary) said(test string) string {
	if s := b.lastOutput[test]; s != nil {
		return tail(s.String())
	}
	return b.tail()
}

// hung returns the tests that ran when the last run came to its time limit.
func (b *binary) hung() string {
	_, list, _ := strings.Cut(b.whole, "\trunning tests:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	return strings.Join(strings.Fields(list), " ")
}

func (b *binary) tail() string { return tail(b.whole) }

func tail(s string) string { return s[max(0, len(s)-4000):] }
