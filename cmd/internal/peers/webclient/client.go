// SPDX-License-Identifier: MIT

package webclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Names of the clients, as they appear in tables and result files.
const (
	// NameAB is ab with a connection for each request, NameABKeep ab with requests that follow each
	// other on a connection (ab -k).
	NameAB     = "ab"
	NameABKeep = "ab-k"
	// NameWrk is wrk with one thread.
	NameWrk = "wrk"
)

// ErrMissing is matched by the error of [Find] where a program is not installed.
var ErrMissing = errors.New("is not installed")

// packages are Debian's packages of the programs.
var packages = map[string]string{NameAB: "apache2-utils", NameWrk: "wrk"}

// program returns the name of a client's program.
func program(client string) string {
	if client == NameABKeep {
		return NameAB
	}
	return client
}

// Find returns the path of a client's program.
func Find(client string) (string, error) {
	name := program(client)
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s %w (Debian: apt-get install %s)", name, ErrMissing, packages[name])
	}
	return path, nil
}

// Version returns what a client's program calls itself.
func Version(ctx context.Context, client, path string) (string, error) {
	option := "-v" // With it wrk complains that it got no address.
	if program(client) == NameAB {
		option = "-V"
	}
	out, err := exec.CommandContext(ctx, path, option).CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if len(out) == 0 {
		return "", fmt.Errorf("ask %s for its version: %w", client, err)
	}
	line, _, _ = strings.Cut(line, " Copyright")
	line, _, _ = strings.Cut(line, " <$")
	return strings.TrimPrefix(line, "This is "), nil
}

// Job is what a client is asked to do.
type Job struct {
	// Client is its name, Path its program.
	Client, Path string
	// Addr is the server's address, of which "/" is asked for over so many connections at once.
	Addr        string
	Connections int
	// Measure is how long; both programs count whole seconds, so it is rounded up to one.
	Measure time.Duration
}

// Window is how long the client really asks.
func (j Job) Window() time.Duration {
	return time.Duration(math.Ceil(j.Measure.Seconds())) * time.Second
}

// Run lets the client ask. Requests that failed are an error. When ctx ends it is killed, and the
// error matches the context's.
func (j Job) Run(ctx context.Context) (loadgen.Result, error) {
	if program(j.Client) == NameAB {
		return j.ab(ctx)
	}
	return j.wrk(ctx)
}

// run runs the program and returns its standard output.
func (j Job) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, j.Path, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	measure.Isolate(cmd)
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", j.Client, err, strings.TrimSpace(said.String()+out.String()))
	}
	return out.String(), nil
}

// url is what is asked for.
func (j Job) url() string { return "http://" + j.Addr + "/" }
