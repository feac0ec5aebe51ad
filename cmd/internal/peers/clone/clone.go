// SPDX-License-Identifier: MIT

// Package clone builds echo servers on libraries of which the user has a clone of the repository.
// It compiles its programs with the clone when they are needed.
package clone

import (
	"context"
	_ "embed" // The programs are built at run time.
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// These are the names of the engines in tables and result files.
const (
	Gnet    = "gnet"      // one loop per processor
	GnetOne = "gnet-loop" // with one loop
	Monoio  = "monoio"
)

// Names are all engines of this package.
var Names = []string{Gnet, GnetOne, Monoio}

var (
	//go:embed talk.go
	talkSource []byte
	//go:embed gnet.go
	gnetSource []byte
	//go:embed monoio.rs
	monoioSource []byte
)

// library describes the library of an engine.
type library struct {
	flag   string // flag for the clone
	source []byte
	module string // Go module; empty for Rust
	file   string // a file that a clone must have
	args   []string
}

var libraries = map[string]library{
	Gnet:    {flag: Gnet, source: gnetSource, module: "github.com/panjf2000/gnet/v2", file: "gnet.go"},
	GnetOne: {flag: Gnet, source: gnetSource, module: "github.com/panjf2000/gnet/v2", file: "gnet.go", args: []string{"one"}},
	Monoio:  {flag: Monoio, source: monoioSource, file: "monoio/Cargo.toml"},
}

// Is reports whether an engine is one of this package.
func Is(engine string) bool { return libraries[engine].flag != "" }

// Flag returns the name, without dashes, of the flag for an engine's clone.
func Flag(engine string) string { return libraries[engine].flag }

// Program is a compiled server.
type Program struct {
	dir, version string
	command      []string
}

// Command returns the command that starts the server.
func (p *Program) Command() []string { return p.command }

// Version returns the name of the library and its commit.
func (p *Program) Version() string { return p.version }

// Remove removes the program.
func (p *Program) Remove() error { return os.RemoveAll(p.dir) }

// Build compiles an engine with a clone of its library into a temporary directory. It does not
// change the clone. The tools of the language fetch the library's own dependencies. When ctx ends,
// the error matches that of the context.
func Build(ctx context.Context, engine, clone string) (p *Program, err error) {
	lib := libraries[engine]
	if clone == "" {
		return nil, fmt.Errorf("it is built from a clone of its repository: name one with --%s DIR", lib.flag)
	}
	if clone, err = filepath.Abs(clone); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(clone, lib.file)); err != nil {
		return nil, fmt.Errorf("--%s %s is not a clone of %s: %w", lib.flag, clone, lib.flag, err)
	}
	dir, err := os.MkdirTemp("", "ringside-"+lib.flag+"-*")
	if err != nil {
		return nil, err
	}
	p = &Program{dir: dir, version: strings.TrimSpace(engine + " " + commit(ctx, clone))}
	build := lib.buildRust
	if lib.module != "" {
		build = lib.buildGo
	}
	path, err := build(ctx, dir, clone)
	if err != nil {
		return nil, errors.Join(err, p.Remove())
	}
	p.command = append([]string{path}, lib.args...)
	return p, nil
}

// buildGo compiles in a module whose only requirement is replaced with the clone.
func (l library) buildGo(ctx context.Context, dir, clone string) (string, error) {
	module := fmt.Sprintf("module peer\n\ngo 1.24\n\nrequire %s %s\n\nreplace %[1]s => %[3]q\n", l.module, zeroVersion(l.module), clone)
	for name, data := range map[string][]byte{"go.mod": []byte(module), "main.go": l.source, "talk.go": talkSource} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return "", err
		}
	}
	path := filepath.Join(dir, "server")
	// Files named on the command line are built despite the build constraint that keeps them out of
	// this module.
	return path, run(ctx, dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod"}, "go", "build", "-o", path, "main.go", "talk.go")
}

// zeroVersion returns a version that is valid for the module's path.
func zeroVersion(module string) string {
	if _, major, ok := strings.Cut(module, "/v"); ok {
		return "v" + major + ".0.0"
	}
	return "v0.0.0"
}

// buildRust compiles a crate whose dependency is the clone.
func (l library) buildRust(ctx context.Context, dir, clone string) (string, error) {
	crate := fmt.Sprintf("[package]\nname = \"server\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[dependencies]\nmonoio = { path = %q }\n\n[workspace]\n",
		filepath.Join(clone, "monoio"))
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o700); err != nil {
		return "", err
	}
	for name, data := range map[string][]byte{"Cargo.toml": []byte(crate), "src/main.rs": l.source} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "target/release/server"), run(ctx, dir, nil, "cargo", "build", "--release", "--quiet")
}

// commit returns the clone's commit, or "" if git cannot determine it.
func commit(ctx context.Context, clone string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", clone, "describe", "--always", "--tags", "--abbrev=12").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// run runs a command in dir. The error of a failed command contains the end of its output. When ctx
// ends the command is killed, and the error is that of the context.
func run(ctx context.Context, dir string, env []string, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	_, err := measure.Output(ctx, cmd, func(stderr, stdout string) string {
		lines := strings.Split(strings.TrimSpace(stdout+stderr), "\n")
		return strings.Join(lines[max(0, len(lines)-3):], "; ")
	})
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("it is compiled with %s, which is not installed", program)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s %s: %w", program, args[0], err)
	}
	return err
}
