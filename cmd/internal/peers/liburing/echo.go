// SPDX-License-Identifier: MIT

package liburing

import (
	"context"
	_ "embed" // The program is built where it is run.
)

//go:embed echo.c
var echoSource []byte

// BuildEcho compiles the echo server as [Build] does the no-ops, with the same errors.
func BuildEcho(ctx context.Context) (*Program, error) {
	return buildProgram(ctx, "echo", echoSource, "-lpthread")
}

// Command returns how the echo server is started: with deferred task work on a ring of one thread,
// the fastest way for C.
func (p *Program) Command() []string { return []string{p.path, "defer"} }

// Version names the library and how the program was compiled.
func (p *Program) Version() string { return p.about(answer{}) + ", " + optimize }
