// SPDX-License-Identifier: MIT

// Package gotree makes a Go tree whose package os opens files through package ufile and whose
// package net moves data through package unet. So tests that only use os and net, those of Go and
// of other projects, test ufile and unet without a change.
//
// The tree is a copy of the toolchain's GOROOT in a directory of the caller's. *os.File, *os.Root,
// *net.TCPConn and so on keep their types. Each gets a field, and each exported method forwards the
// call if that field is set. No code of GOROOT gets into this repository. The patch fails if Go's
// source has changed too much.
package gotree

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed hooks/*.go.txt
var hooks embed.FS

// Tree is a patched copy of GOROOT.
type Tree struct {
	Root string // GOROOT of the tree
}

// Make copies the GOROOT of the go command to dir, which must not exist, and
// patches the copy. repo is the root of this repository.
func Make(dir, repo string) (*Tree, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	t := &Tree{Root: dir}
	if err := t.copyRoot(strings.TrimSpace(string(out))); err != nil {
		return nil, err
	}
	if err := t.addLibrary(repo); err != nil {
		return nil, err
	}
	return t, errors.Join(t.patchOS(), t.patchNet())
}

// Env returns the environment for commands that use the tree.
func (t *Tree) Env() []string {
	env := []string{"GOROOT=" + t.Root, "GOTOOLCHAIN=local", "GOWORK=off", "GOFLAGS=-buildvcs=false",
		"PATH=" + filepath.Join(t.Root, "bin") + string(filepath.ListSeparator) + os.Getenv("PATH")}
	for _, e := range os.Environ() {
		switch name, _, _ := strings.Cut(e, "="); name {
		case "GOROOT", "GOTOOLCHAIN", "GOWORK", "GOFLAGS", "PATH", "GO_GCFLAGS", "RINGSIDE_MUST":
		default:
			env = append(env, e)
		}
	}
	return env
}

// copyRoot copies everything that is needed to build and test packages. Tools and the commands'
// source are links.
func (t *Tree) copyRoot(from string) error {
	if err := os.Mkdir(t.Root, 0o777); err != nil {
		return err
	}
	for _, name := range []string{"VERSION", "go.env"} {
		if err := copyFile(filepath.Join(t.Root, name), filepath.Join(from, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "pkg", "lib", "misc", "api", "test"} {
		if err := link(from, t.Root, name); err != nil {
			return err
		}
	}
	return filepath.WalkDir(filepath.Join(from, "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(t.Root, rel)
		switch {
		case rel == filepath.Join("src", "cmd"):
			if err := link(from, t.Root, rel); err != nil {
				return err
			}
			return fs.SkipDir
		case d.IsDir():
			return os.Mkdir(to, 0o777)
		case d.Type().IsRegular():
			return copyFile(to, path)
		}
		return nil
	})
}

// link makes a link to a part of GOROOT that some distributions leave out.
func link(from, to, name string) error {
	target, err := filepath.EvalSymlinks(filepath.Join(from, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Symlink(target, filepath.Join(to, name))
}

func copyFile(to, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm()|0o200)
}

const (
	module  = "github.com/ringside-io/ringside"
	library = "ringside" // its place in the tree
)

// newNames are the import paths and functions of the library's copy. Files that the library itself
// opens must not be opened through the library.
var newNames = strings.NewReplacer(
	`"`+module+`/`, `"`+library+`/`,
	`"golang.org/x/sys/unix"`, `"`+library+`/unix"`,
	"os.OpenFile(", "os.StdOpenFile(",
	"os.Open(", "os.StdOpen(",
	"os.Create(", "os.StdCreate(",
	"os.OpenRoot(", "os.StdOpenRoot(",
	"os.ReadFile(", "os.StdReadFile(",
	"os.ReadDir(", "os.StdReadDir(",
	"os.NewFile(", "os.StdNewFile(",
	"os.Pipe(", "os.StdPipe(",
	"net.FileConn(", "net.StdFileConn(",
	"net.FileListener(", "net.StdFileListener(",
)

// addLibrary adds ufile, unet and their imports to the tree's packages.
func (t *Tree) addLibrary(repo string) error {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard", "./ufile", "./unet")
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for dec.More() {
		var p struct {
			ImportPath, Dir string
			Standard        bool
		}
		if err := dec.Decode(&p); err != nil {
			return err
		}
		rel, ours := strings.CutPrefix(p.ImportPath, module+"/")
		switch {
		case ours:
		case p.ImportPath == "golang.org/x/sys/unix":
			rel = "unix"
		case p.Standard:
			continue
		default:
			return fmt.Errorf("%s: a dependency that the tree cannot have", p.ImportPath)
		}
		if err := copyPackage(filepath.Join(t.Root, "src", library, rel), p.Dir); err != nil {
			return err
		}
	}
	for _, p := range []string{"ufile", "unet"} {
		if err := t.addHook(p, filepath.Join(library, p)); err != nil {
			return err
		}
	}
	return nil
}

func copyPackage(to, from string) error {
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		isGo := strings.HasSuffix(name, ".go")
		if e.IsDir() || strings.HasSuffix(name, "_test.go") || !isGo && !strings.HasSuffix(name, ".s") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if isGo {
			data = []byte(newNames.Replace(string(data)))
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// addHook adds the file of hooks called name to a package of the tree.
func (t *Tree) addHook(name, pkg string) error {
	data, err := hooks.ReadFile("hooks/" + name + ".go.txt")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.Root, "src", pkg, "ringside.go"), data, 0o666)
}
