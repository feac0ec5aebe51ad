// SPDX-License-Identifier: MIT

package overlay

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringside-io/ringside"
)

const (
	module  = "github.com/ringside-io/ringside"
	library = "ringside" // its place among the standard library's packages
)

// names are the import paths of the library's copy. Its x/sys is the one of the go command's own
// source.
var names = strings.NewReplacer(
	`"`+module+`/`, `"`+library+`/`,
	`"golang.org/x/sys/unix"`, `"`+library+`/unix"`,
)

// frontNames and socketNames are the functions with which the library opens its own files and
// sockets, when those of os and net lead to the library.
var (
	frontNames = strings.NewReplacer(
		"os.OpenFile(", "os.StdOpenFile(",
		"os.Open(", "os.StdOpen(",
		"os.Create(", "os.StdCreate(",
		"os.OpenRoot(", "os.StdOpenRoot(",
		`os.DirFS("/")`, `os.StdDirFS("/")`,
		"os.ReadFile(", "os.StdReadFile(",
		"os.ReadDir(", "os.StdReadDir(",
		"os.NewFile(", "os.StdNewFile(",
		"os.Pipe(", "os.StdPipe(",
	)
	socketNames = strings.NewReplacer(
		"net.FileConn(", "net.StdFileConn(",
		"net.FileListener(", "net.StdFileListener(",
	)
)

// testPrograms is the package that all programs of tests import, and no other.
const testPrograms = "testing/internal/testdeps"

// addLibrary adds ufile, unet and their imports.
func (b *builder) addLibrary() error {
	err := fs.WalkDir(ringside.Source, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := ringside.Source.ReadFile(name)
		if err != nil {
			return err
		}
		return b.add(path.Join(library, name), b.rename(data))
	})
	if err != nil {
		return err
	}
	hooks := [][2]string{{"features", "features"}}
	if b.options.Files {
		hooks = append(hooks, [2]string{"ufile", "ufile"})
	}
	if b.options.Fronts {
		hooks = append(hooks, [2]string{"ufile_fronts", "ufile"})
	}
	if b.options.Sockets {
		hooks = append(hooks, [2]string{"unet", "unet"})
	}
	for _, h := range hooks {
		text, err := own.ReadFile("hooks/" + h[0] + ".go.txt")
		if err != nil {
			return err
		}
		if err := b.add(path.Join(library, h[1], "ringside.go"), b.rename(text)); err != nil {
			return err
		}
	}
	return b.addSys()
}

// rename makes a file of the library part of the standard library.
func (b *builder) rename(text []byte) []byte {
	s := names.Replace(string(text))
	if b.options.Fronts {
		s = frontNames.Replace(s)
	}
	if b.options.Sockets {
		s = socketNames.Replace(s)
	}
	return []byte(s)
}

// addSys adds golang.org/x/sys/unix, as the go command itself uses it. The assembler needs a
// directory that exists, so functions in Go replace those in assembly.
func (b *builder) addSys() error {
	dir := filepath.Join(b.tools.GOROOT, "src", "cmd", "vendor", "golang.org", "x", "sys", "unix")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("golang.org/x/sys is missing: install the complete source of Go: %w", err)
	}
	assembly := []string{"syscall_unix_gc.go", "syscall_linux_gc.go", "syscall_linux_amd64_gc.go", "vgetrandom_linux.go"}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || slices.Contains(assembly, name) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := b.add(path.Join(library, "unix", name), data); err != nil {
			return err
		}
	}
	return b.addHook("unix", path.Join(library, "unix", "ringside_linux.go"))
}

// link makes programs import the library. Package os cannot, because the library needs package os.
// The main packages do where the overlay reaches them: the packages of the standard library are then
// compiled alike for each version of the library. Elsewhere each package of the standard library does
// that the library does not need: flag, os/signal, crypto and so on, and that of -cover. With go test
// only the programs of tests do: the tests of net import such packages, which would be a circle.
func (b *builder) link() error {
	var linked []string
	if b.options.Files || b.options.Fronts {
		linked = append(linked, library+"/ufile")
	}
	if b.options.Sockets {
		linked = append(linked, library+"/unet")
	}
	imports := "\n\nimport _ \"" + strings.Join(linked, "\"\nimport _ \"") + "\"\n"
	below, err := b.list(append([]string{"-deps"}, linked...)...)
	if err != nil {
		return err
	}
	all := []string{testPrograms, "runtime/coverage"}
	if !b.options.tests && !b.options.mains {
		if all, err = b.list("std", testPrograms); err != nil {
			return err
		}
	}
	for _, p := range all {
		inside := strings.Contains(p+"/", "internal/") && p != testPrograms
		if inside || strings.HasPrefix(p, "vendor/") || strings.HasPrefix(p, "runtime/") && p != "runtime/coverage" ||
			strings.HasPrefix(p, library+"/") || p == "unsafe" || slices.Contains(below, p) {
			continue
		}
		name := path.Base(p)
		if name == "v2" {
			name = path.Base(path.Dir(p))
		}
		if err := b.add(path.Join(p, "ringside_linux.go"), []byte("package "+name+imports)); err != nil {
			return err
		}
	}
	if !b.options.tests { // tests of expvar know its variables
		if err := b.addHook("expvar", "expvar/ringside_vars_linux.go"); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(b.temp, mainFile), []byte("package main"+imports), 0o666)
}

// list runs go list with the overlay as it is so far.
func (b *builder) list(args ...string) ([]string, error) {
	so := filepath.Join(b.temp, "so_far.json")
	if err := b.writeJSON(so, b.temp); err != nil {
		return nil, err
	}
	cmd := exec.Command(b.tools.goCommand, append([]string{"list", "-overlay=" + so}, args...)...)
	cmd.Dir = filepath.Join(b.tools.GOROOT, "src") // its own module
	// With PWD the go command does not resolve the link to a toolchain.
	cmd.Env = append(slices.Clone(b.tools.env), "PWD="+cmd.Dir, "GOFLAGS=", "GOWORK=off",
		"GOOS=linux", "GOARCH="+b.tools.GOARCH)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", cmd, err, stderr.Bytes())
	}
	return strings.Fields(string(out)), nil
}
