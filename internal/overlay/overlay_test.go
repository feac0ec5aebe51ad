// SPDX-License-Identifier: MIT

package overlay

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestSource checks that the embedded source is that of the library: the pattern has no way to leave
// out tests, so names are listed.
func TestSource(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-f", `{{$d := .ImportPath}}{{if not .Standard}}{{range .GoFiles}}{{$d}}/{{.}}
{{end}}{{range .IgnoredGoFiles}}{{$d}}/{{.}}
{{end}}{{end}}`, "./ufile", "./unet")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, path := range strings.Fields(string(out)) {
		if rel, ok := strings.CutPrefix(path, module+"/"); ok && !strings.HasSuffix(path, "_test.go") {
			want = append(want, rel)
		}
	}
	err = fs.WalkDir(ringside.Source, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, path)
		}
		return err
	})
	slices.Sort(want)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: embedded %v\nwant %v", err, got, want)
	}
}

// TestOtherSource checks that a rule without a match is an error that names the toolchain.
func TestOtherSource(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"internal/poll", "net", "os"} {
		if err := os.MkdirAll(filepath.Join(root, "src", dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	b := &builder{tools: &Toolchain{GOROOT: root}, options: Options{Files: true, Sockets: true}, temp: t.TempDir(), replace: map[string]string{}}
	err := errors.Join(b.patchPoll(), b.patchOS(), b.patchNet())
	for _, want := range []string{"no structure FD", "no function FD.Pread", "no function .Splice", "no structure File", "no function .OpenFile", "no structure conn"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("patches of empty packages: %v, want %q", err, want)
		}
	}
	_, err = Make(&Toolchain{GOOS: "linux", GOARCH: "386"}, t.TempDir(), Options{Files: true})
	if err == nil || !strings.Contains(err.Error(), "amd64 and arm64, not for 386: use go build") {
		t.Errorf("Make for 386: %v", err)
	}
	_, err = Make(&Toolchain{GOROOT: root, GOVERSION: "go1.26.99", GOOS: "linux", GOARCH: "amd64"}, t.TempDir(), Options{Files: true})
	if err == nil || !strings.Contains(err.Error(), "the source of go1.26.99 in "+root) {
		t.Errorf("Make: %v", err)
	}
}

// TestStandardTests checks that the tests of the standard library import no package in a circle,
// those of the packages that ringside needs included.
func TestStandardTests(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: elsewhere the overlay is empty")
	}
	cache := t.TempDir()
	tools, err := Select("", cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{Files: true, Sockets: true}, {Fronts: true}}[:ringtest.Rounds(2, 1)] {
		list, err := tools.Command(cache, o, "test", []string{"std"})
		if err != nil {
			t.Fatal(err)
		}
		overlay := list.Args[slices.IndexFunc(list.Args, func(a string) bool { return strings.HasPrefix(a, "-overlay=") })]
		list = exec.Command("go", "list", overlay, "-e", "-test", "-f", "{{with .Error}}{{.}}{{end}}", "std")
		out, err := list.CombinedOutput()
		if text := strings.TrimSpace(string(out)); err != nil || text != "" {
			t.Errorf("%v: %v\n%s", o, err, text)
		}
	}
}

// embedding begins a program that embeds files.
const embedding = "package main\n\nimport \"embed\"\n\n//go:embed "

// TestPrograms checks to which programs the library is added by their main package. Then no package of the
// standard library but expvar depends on the library's source.
func TestPrograms(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: elsewhere the overlay is empty")
	}
	dir, cache := t.TempDir(), t.TempDir()
	t.Setenv("GOWORK", "off")
	for path, text := range map[string]string{
		"go.mod": "module program\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n",
		"lib/lib.go": "package lib\n", "cmd/main.go": "package main\n\nfunc main() {}\n",
		"_self/main.go":  embedding + "*\nvar all embed.FS\n\nfunc main() {}\n",
		"_other/main.go": embedding + "*.txt\nvar all embed.FS\n\nfunc main() {}\n", "_other/a.txt": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, path), text)
	}
	tools, err := Select(dir, cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args  []string
		dirs  int
		whole bool
	}{
		{[]string{"."}, 1, true},
		{[]string{"./..."}, 2, true},
		{[]string{"main.go"}, 0, true},
		{[]string{"./lib"}, 0, false},
		{[]string{"lib/lib.go"}, 0, false},
		{[]string{"missing.go"}, 0, false},
		{[]string{".", "cmd/gofmt"}, 1, false},
		{[]string{"./_self"}, 0, false}, // its embed.FS would have one more file
		{[]string{"./_other"}, 1, true},
		{[]string{"_self/main.go"}, 0, false},
	} {
		p := tools.findPrograms([]string{"-C=" + dir}, tc.args)
		if len(p.dirs) != tc.dirs || p.all != tc.whole {
			t.Errorf("%v: %v, all: %v", tc.args, p.dirs, p.all)
		}
	}
	cmd, err := tools.Command(cache, Options{Files: true, Sockets: true}, "build", []string{"-C", dir, "./..."})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(cmd.Args, func(a string) bool { return strings.HasPrefix(a, "-overlay=") })
	replace, err := readOverlay(strings.TrimPrefix(cmd.Args[at], "-overlay="))
	if err != nil {
		t.Fatal(err)
	}
	mains := 0
	for path, file := range replace {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		switch rel, _ := filepath.Rel(filepath.Join(tools.GOROOT, "src"), path); {
		case below(path, dir):
			mains++
		case strings.HasPrefix(rel, library), strings.HasPrefix(rel, "expvar"), strings.HasPrefix(rel, testPrograms), strings.HasPrefix(rel, "runtime/coverage"):
		case strings.Contains(string(text), `"`+library+`/`):
			t.Errorf("%s imports the library", rel)
		}
	}
	if mains != 2 {
		t.Errorf("the overlay has %d files of main packages, want 2", mains)
	}
}

// TestSelect checks which toolchains are accepted, and that one in the module cache is reached by
// another path.
func TestSelect(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	for _, tc := range []struct{ version, root, want string }{
		{"go1.26.8", "/usr/lib/go", ""},
		{"go1.27rc1", "/usr/lib/go", ""},
		{"go1.27.3", "/mod/golang.org/toolchain@v0.0.1-go1.27.3.linux-amd64", ""},
		{"go1.27.3", "/mod/moved/golang.org/toolchain@v0.0.1-go1.27.3.linux-amd64", ""},
		{"go1.25.9", "/usr/lib/go", "this ringside knows go1.26 and go1.27: set GOTOOLCHAIN"},
		{"go1.28", "/usr/lib/go", "or install a newer ringside"},
		{"devel go1.28-abc", "/usr/lib/go", "or install a newer ringside"},
	} {
		text, _ := json.Marshal(map[string]string{"GOVERSION": tc.version, "GOROOT": tc.root, "GOMODCACHE": "/mod", "GOOS": "linux"})
		write(t, filepath.Join(bin, "go"), "#!/bin/sh\necho '"+string(text)+"'\n")
		if err := os.Chmod(filepath.Join(bin, "go"), 0o755); err != nil {
			t.Fatal(err)
		}
		tools, err := Select("", cache)
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", tc.version, err, tc.want)
			}
			continue
		}
		if err != nil || strings.HasPrefix(tools.GOROOT, "/mod") {
			t.Errorf("%s in %s: %v %+v", tc.version, tc.root, err, tools)
			continue
		}
		if to, err := os.Readlink(tools.GOROOT); err == nil && to != tc.root {
			t.Errorf("%s in %s: the link leads to %s", tc.version, tc.root, to)
		}
	}
}

// TestMake checks what does not need a build: other systems, two builds at once, and a cache that
// cannot be written.
func TestMake(t *testing.T) {
	tools, err := Select("", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	other := *tools
	other.GOOS = "darwin"
	path, err := Make(&other, t.TempDir(), Options{Files: true})
	if text, _ := os.ReadFile(path); err != nil || strings.Count(string(text), ":") != 1 {
		t.Errorf("darwin: %v, %s", err, text)
	}
	cache := t.TempDir()
	for name, age := range map[string]time.Duration{unfinished + "1": 25 * time.Hour, unfinished + "2": time.Hour} {
		at := time.Now().Add(-age)
		if err := errors.Join(os.Mkdir(filepath.Join(cache, name), 0o777), os.Chtimes(filepath.Join(cache, name), at, at)); err != nil {
			t.Fatal(err)
		}
	}
	var paths [2]string
	var wg sync.WaitGroup
	for i := range paths {
		wg.Go(func() { paths[i], _ = Make(&other, cache, Options{Files: true}) })
	}
	wg.Wait()
	left, _ := os.ReadDir(cache)
	if paths[0] == "" || paths[0] != paths[1] || len(left) != 2 || left[1].Name() != unfinished+"2" {
		t.Errorf("two at once: %q, left %v, want the overlay and what a build may still write", paths, left)
	}
	write(t, filepath.Join(cache, "file"), "")
	if _, err := Make(&other, filepath.Join(cache, "file"), Options{}); err == nil || !strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Errorf("no directory: %v", err)
	}
}

// TestArguments checks how the arguments of the go command are understood.
func TestArguments(t *testing.T) {
	for _, tc := range []struct{ args, flags, rest string }{
		{"./...", "", "./..."},
		{"-race ./cmd -tags=x", "-race", "./cmd -tags=x"},
		{"-o out -tags a,b -v . arg", "-o out -tags a,b -v", ". arg"},
		{"--trimpath -run Name -count=1 ./x", "--trimpath -run Name -count=1", "./x"},
		{"-short -args -tags x", "-short", "-args -tags x"},
		{"-ldflags=-w", "-ldflags=-w", ""},
		{"-buildvcs -test.v -test.run X -- .", "-buildvcs -test.v -test.run X", "-- ."},
	} {
		flags, rest := split(strings.Fields(tc.args))
		if strings.Join(flags, " ") != tc.flags || strings.Join(rest, " ") != tc.rest {
			t.Errorf("%s: %q %q", tc.args, flags, rest)
		}
	}
	for _, tc := range []struct{ goflags, flags, want string }{
		{"", "", "-tags=new"},
		{"", "-tags a,b", "-tags a,b -tags=a,b,new"},
		{"-mod=mod -tags=c", "-v", "-v -tags=c,new"},
		{"-tags=c", "--tags=a", "--tags=a -tags=a,new"},
		{"'-ldflags=-s -w' \"-tags=c d\"", "", "-tags=c,d,new"},
	} {
		tools := &Toolchain{GOFLAGS: tc.goflags}
		if got := strings.Join(tools.tag(strings.Fields(tc.flags), "new"), " "); got != tc.want {
			t.Errorf("%s with GOFLAGS=%s: %s, want %s", tc.flags, tc.goflags, got, tc.want)
		}
	}
	for _, tc := range []struct{ goflags, verb, args string }{
		{"-overlay=mine", "build", ""},
		{"-v '-overlay=of mine'", "build", ""},
		{"", "run", "-overlay mine ."},
		{"", "test", "./... -overlay=mine"},
	} {
		tools := &Toolchain{GOFLAGS: tc.goflags}
		_, err := tools.Command(t.TempDir(), Options{}, tc.verb, strings.Fields(tc.args))
		if err == nil || !strings.Contains(err.Error(), "leave out -overlay") {
			t.Errorf("a second overlay, %+v: %v", tc, err)
		}
	}
	for _, tc := range []struct{ verb, args, want string }{
		{"build", "", "."},
		{"build", "-- ./a ./b", "./a ./b"},
		{"run", "./a ./... -mod=mod", "./a"}, // the rest belongs to the program
		{"run", "a.go b.go c", "a.go b.go c"},
		{"install", "./a ./b", "./a ./b"},
		{"test", "./...", ""},
	} {
		if got := strings.Join(packages(tc.verb, strings.Fields(tc.args)), " "); got != tc.want {
			t.Errorf("packages of go %s %s: %q, want %q", tc.verb, tc.args, got, tc.want)
		}
	}
}

// TestSwitches compares the flags that take no value with the go command's own help.
func TestSwitches(t *testing.T) {
	line := regexp.MustCompile(`(?m)^\t-([a-z]+)( .+)?$`)
	seen := 0
	for _, topic := range []string{"build", "run", "test", "testflag"} {
		text, err := exec.Command("go", "help", topic).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllSubmatch(text, -1) {
			flag, takes := string(m[1]), len(m[2]) > 0
			if seen++; flag != "args" && takes == slices.Contains(switches, flag) {
				t.Errorf("go help %s: -%s takes a value: %v", topic, flag, takes)
			}
		}
	}
	if seen < 50 {
		t.Errorf("go help describes %d flags, want at least 50", seen)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}
