// SPDX-License-Identifier: MIT

package overlay

import (
	"debug/elf"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// reader is the part that all shapes of programs share: it reads at an offset.
const reader = `package PACKAGE

import "os"

func Read() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	p := make([]byte, 3)
	if _, err := f.ReadAt(p, 1); err != nil {
		panic(err)
	}
	return string(p)
}
`

// forkOfNet is a package net with a listener of its own, as forks have that set options of sockets before they
// listen: it is linked to what package net does not export, and package net gets its descriptor.
const forkOfNet = `package net

import (
	"net"
	"os"
	"syscall"
	_ "unsafe"
)

` + "//go:linkname listenerBacklog net.listenerBacklog\n" + `func listenerBacklog() int

type Listener struct{ net.Listener }

func Listen() (*Listener, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, err
	}
	if err := syscall.Listen(fd, listenerBacklog()); err != nil {
		return nil, err
	}
	l, err := net.FileListener(f)
	return &Listener{l}, err
}
`

// forkUser is a server on the fork and its client on package net.
const forkUser = `package main

import (
	"io"
	"net"

	fork "example.org/net"
)

func main() {
	l, err := fork.Listen()
	check(err)
	go func() {
		c, err := net.Dial("tcp", l.Addr().String())
		check(err)
		_, err = c.Write([]byte(Read()))
		check(err)
		check(c.Close())
	}()
	c, err := l.Accept()
	check(err)
	text, err := io.ReadAll(c)
	check(err)
	print(string(text))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
`

// shapes are programs that are put together in unusual ways. The main package is in the directory main.
// Each prints ELF.
var shapes = map[string]struct {
	files map[string]string
	env   string
	first string // a build before that of main
	needs string // a program
	uses  string // a package of ringside beside ufile
}{
	"vendor": {files: map[string]string{
		"main/go.mod":                              "module program\n\ngo 1.26\n\nrequire example.org/reader v1.0.0\n",
		"main/vendor/modules.txt":                  "# example.org/reader v1.0.0\n## explicit; go 1.26\nexample.org/reader\n",
		"main/vendor/example.org/reader/reader.go": "package reader",
		"main/main.go":                             "package main\n\nimport \"example.org/reader\"\n\nfunc main() { print(reader.Read()) }\n",
	}},
	"workspace": {files: map[string]string{
		"go.work":          "go 1.26\n\nuse (\n\t./main\n\t./reader\n)\n",
		"reader/go.mod":    "module example.org/reader\n\ngo 1.26\n",
		"reader/reader.go": "package reader",
		"main/go.mod":      "module program\n\ngo 1.26\n",
		"main/main.go":     "package main\n\nimport \"example.org/reader\"\n\nfunc main() { print(reader.Read()) }\n",
	}, env: "GOWORK="},
	"cgo": {files: map[string]string{
		"main/go.mod":    "module program\n\ngo 1.26\n",
		"main/reader.go": "package main",
		"main/main.go":   "package main\n\n// int one(void) { return 1; }\nimport \"C\"\n\nfunc main() {\n\tif C.one() == 1 {\n\t\tprint(Read())\n\t}\n}\n",
	}, env: "CGO_ENABLED=1", needs: "gcc"},
	"linkname": {files: map[string]string{
		"main/go.mod":    "module program\n\ngo 1.26\n",
		"main/reader.go": "package main",
		"main/main.go":   "package main\n\nimport _ \"unsafe\"\n\n//go:linkname nanotime runtime.nanotime\nfunc nanotime() int64\n\nfunc main() {\n\tif nanotime() > 0 {\n\t\tprint(Read())\n\t}\n}\n",
	}},
	"fork of net": {files: map[string]string{
		"main/go.mod":                        "module program\n\ngo 1.26\n\nrequire example.org/net v1.0.0\n",
		"main/vendor/modules.txt":            "# example.org/net v1.0.0\n## explicit; go 1.26\nexample.org/net\n",
		"main/vendor/example.org/net/net.go": forkOfNet,
		"main/reader.go":                     "package main",
		"main/main.go":                       forkUser,
	}, uses: "unet "},
	"plugin": {files: map[string]string{
		"main/go.mod":         "module program\n\ngo 1.26\n",
		"main/plug/reader.go": "package main",
		"main/plug/main.go":   "package main\n\nfunc main() {}\n",
		"main/main.go":        "package main\n\nimport (\n\t\"os\"\n\t\"plugin\"\n)\n\nfunc main() {\n\tp, err := plugin.Open(os.Args[1])\n\tif err != nil {\n\t\tpanic(err)\n\t}\n\tread, err := p.Lookup(\"Read\")\n\tif err != nil {\n\t\tpanic(err)\n\t}\n\tprint(read.(func() string)())\n}\n",
	}, env: "CGO_ENABLED=1", needs: "gcc", first: "-buildmode=plugin -o PLUGIN ./plug"},
}

// TestShapes builds programs from vendor directories, in workspaces, with cgo, linknames, plugins and a fork of net.
func TestShapes(t *testing.T) {
	if !ringtest.Long() {
		t.Skip("compiles the standard library five times: only with RINGSIDE_LONG=1")
	}
	cache := t.TempDir()
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(shape.needs); shape.needs != "" && err != nil {
				t.Skipf("needs %s", shape.needs)
			}
			root := t.TempDir()
			for path, text := range shape.files {
				if base := filepath.Base(path); base == "reader.go" {
					text = strings.Replace(reader, "package PACKAGE", text, 1)
				}
				if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o777); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(root, path), text)
			}
			t.Setenv("GOWORK", "off")
			if name, value, ok := strings.Cut(shape.env, "="); ok {
				t.Setenv(name, value)
			}
			dir, plugin := filepath.Join(root, "main"), filepath.Join(root, "plugin.so")
			exe := filepath.Join(root, "program")
			o := Options{Files: true, Sockets: shape.uses == "unet "}
			if shape.first != "" {
				buildIn(t, dir, cache, o, strings.Fields(strings.ReplaceAll(shape.first, "PLUGIN", plugin))...)
			}
			buildIn(t, dir, cache, o, "-o", exe, ".")
			log := filepath.Join(root, "log")
			cmd := exec.Command(exe, plugin)
			cmd.Env = append(os.Environ(), "RINGSIDE_LOG="+log)
			out, err := cmd.CombinedOutput()
			said, _ := os.ReadFile(log)
			if err != nil || string(out) != "ELF" || !strings.Contains(string(said), "ufile ") || !strings.Contains(string(said), shape.uses) {
				t.Errorf("%v: %v %s, the log has %q", cmd, err, out, said)
			}
		})
	}
}

// TestOtherBuilds builds a program with the race detector, which runs, and for arm64.
func TestOtherBuilds(t *testing.T) {
	if !ringtest.Long() {
		t.Skip("compiles the standard library twice: only with RINGSIDE_LONG=1")
	}
	t.Setenv("GOWORK", "off")
	dir, cache := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module program\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "main.go"), strings.Replace(reader, "PACKAGE", "main", 1)+"\nfunc main() { print(Read()) }\n")
	exe, log := filepath.Join(dir, "program"), filepath.Join(dir, "log")
	t.Run("race", func(t *testing.T) {
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip("needs gcc")
		}
		buildIn(t, dir, cache, Options{Files: true, Sockets: true}, "-race", "-o", exe, ".")
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "RINGSIDE_LOG="+log)
		out, err := cmd.CombinedOutput()
		if said, _ := os.ReadFile(log); err != nil || string(out) != "ELF" || !strings.Contains(string(said), "ufile ") {
			t.Errorf("%v %s, the log has %q", err, out, said)
		}
	})
	t.Run("arm64", func(t *testing.T) {
		t.Setenv("GOARCH", "arm64")
		t.Setenv("CGO_ENABLED", "0")
		buildIn(t, dir, cache, Options{Files: true, Sockets: true}, "-o", exe, ".")
		f, err := elf.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		symbols, err := f.Symbols()
		uses := slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return strings.HasPrefix(s.Name, "ringside/ufile.(*File).") })
		if err != nil || f.Machine != elf.EM_AARCH64 || !uses {
			t.Errorf("%v, uses ufile: %v, %v", f.Machine, uses, err)
		}
	})
}

// buildIn runs go build with the overlay in a directory.
func buildIn(t *testing.T, dir, cache string, o Options, args ...string) {
	t.Helper()
	tools, err := Select(dir, cache)
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := tools.Command(cache, o, "build", append([]string{"-C", dir}, args...))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// TestKilledBuilds makes the overlay as an ordinary user, who cannot write to GOROOT, in processes that
// are killed and then in two at once. Then its cache is read-only.
func TestKilledBuilds(t *testing.T) {
	if !ringtest.Long() {
		t.Skip("makes the overlay a dozen times: only with RINGSIDE_LONG=1")
	}
	cache := os.Getenv("RINGSIDE_TEST_CACHE")
	if cache != "" { // the child
		makeOnce(t, cache)
		return
	}
	cache = t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(cache), 0o755), os.Chmod(cache, 0o777)); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(cache, "test") // others may not enter the directory of this one
	if err := os.WriteFile(exe, self, 0o755); err != nil {
		t.Fatal(err)
	}
	child := func() *exec.Cmd {
		cmd := exec.Command(exe, "-test.run=^TestKilledBuilds$", "-test.v")
		cmd.Env = append(os.Environ(), "RINGSIDE_TEST_CACHE="+cache, "GOCACHE="+filepath.Join(cache, "go"), "HOME="+cache, "GOWORK=off", "GOFLAGS=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if os.Getuid() == 0 {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		}
		cmd.Dir = "/"
		return cmd
	}
	for range 10 {
		cmd := child()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if out, err := child().CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	if err := os.Chmod(cache, 0o555); err != nil {
		t.Fatal(err)
	}
	if out, err := child().CombinedOutput(); err != nil {
		t.Errorf("with a read-only cache: %v\n%s", err, out)
	}
}

// makeOnce makes the overlay and checks that its files exist.
func makeOnce(t *testing.T, cache string) {
	tools, err := Select("", cache)
	if err != nil {
		t.Fatal(err)
	}
	path, err := Make(tools, cache, Options{Files: true})
	if err != nil {
		t.Fatal(err)
	}
	replace, err := readOverlay(path)
	if err != nil || len(replace) < 100 {
		t.Errorf("%s: %v, %d files", path, err, len(replace))
	}
	for _, file := range replace {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}
