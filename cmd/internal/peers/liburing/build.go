// SPDX-License-Identifier: MIT

// Package liburing measures the workloads "nop", "read" and "echo" in C on liburing, the library by
// io_uring's author, as the baseline for our ring. Its programs are compiled on the measured
// machine, with the compiler and the liburing found there.
package liburing

import (
	"context"
	_ "embed" // The program is built at run time.
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Name is the engine's name in tables and result files.
const Name = "liburing"

//go:embed ring.c
var ringSource []byte

// These are the errors for missing programs and libraries. They name the package to install.
var (
	ErrNoCompiler = errors.New("there is no C compiler (Debian: apt-get install gcc libc6-dev liburing-dev)")
	ErrNoLibrary  = errors.New("liburing is not installed (Debian: apt-get install liburing-dev)")
)

// optimize is the compiler's optimization flag.
const optimize = "-O2"

// Program is the compiled program.
type Program struct {
	dir, path string
	version   string // of liburing, or "" if unknown
}

// Build compiles the program into a temporary directory, which [Program.Remove] removes. The error
// matches [ErrNoCompiler] or [ErrNoLibrary] if one is missing, and that of the context when ctx
// ends.
func Build(ctx context.Context) (*Program, error) { return buildProgram(ctx, "ring", ringSource) }

// buildProgram compiles a program from one source, with further libraries.
func buildProgram(ctx context.Context, name string, source []byte, libs ...string) (p *Program, err error) {
	cc, err := findCompiler()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ringside-liburing-*")
	if err != nil {
		return nil, err
	}
	p = &Program{dir: dir, path: filepath.Join(dir, name), version: libraryVersion(ctx, dir)}
	if err := p.compile(ctx, cc, source, libs); err != nil {
		return nil, errors.Join(err, p.Remove())
	}
	return p, nil
}

// Remove removes the program.
func (p *Program) Remove() error { return os.RemoveAll(p.dir) }

func findCompiler() (string, error) {
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}

func (p *Program) compile(ctx context.Context, cc string, source []byte, libs []string) error {
	file := p.path + ".c"
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return err
	}
	_, err := run(ctx, p.dir, cc, append([]string{optimize, "-o", p.path, file, "-luring"}, libs...)...)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if lacksLibrary(err.Error()) {
		return ErrNoLibrary
	}
	return fmt.Errorf("compile the peer: %w", err)
}

// lacksLibrary reports whether a message of a compiler or linker is about a missing header or
// library.
func lacksLibrary(said string) bool {
	for line := range strings.Lines(said) {
		missing := strings.Contains(line, "No such file") || strings.Contains(line, "not found")
		if missing && strings.Contains(line, "liburing.h") || strings.Contains(line, "-luring") {
			return true
		}
	}
	return false
}

// libraryVersion asks pkg-config, because older headers of the library have no version.
func libraryVersion(ctx context.Context, dir string) string {
	out, err := run(ctx, dir, "pkg-config", "--modversion", Name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// run runs a command in an English locale and returns its standard output. The error of a failed
// command contains its output. When ctx ends the command is killed, and the error is that of the
// context. Temporary files go to dir, because a killed compiler does not remove them.
func run(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TMPDIR="+dir)
	return measure.Output(ctx, cmd, nil)
}

//go:embed echo.c
var echoSource []byte

// BuildEcho compiles the echo server. It returns the same errors as [Build].
func BuildEcho(ctx context.Context) (*Program, error) {
	return buildProgram(ctx, "echo", echoSource, "-lpthread")
}

// Command returns the command that starts the echo server: with deferred task work on a
// single-issuer ring, the fastest setup in C.
func (p *Program) Command() []string { return []string{p.path, "defer"} }

// Version returns the version of the library and the compiler flags.
func (p *Program) Version() string { return p.about(answer{}) + ", " + optimize }
