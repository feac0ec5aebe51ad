// SPDX-License-Identifier: MIT

// Package ab asks a web server for one page many times, and tells how long that took in the terms of
// ApacheBench: with the program ab where it is installed, else with a load generator of its own that
// measures the same.
package ab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Name is the program's name.
const Name = "ab"

// ErrMissing is returned by Find when ab is not installed.
var ErrMissing = errors.New("ab is not installed (Debian: apt-get install apache2-utils)")

// Find returns the path of the program.
func Find() (string, error) {
	path, err := exec.LookPath(Name)
	if err != nil {
		return "", ErrMissing
	}
	return path, nil
}

// Version returns what the program calls itself, such as "ab 2.3".
func Version(ctx context.Context, program string) (string, error) {
	out, err := exec.CommandContext(ctx, program, "-V").Output()
	if err != nil {
		return "", fmt.Errorf("ask ab for its version: %w", err)
	}
	_, rest, _ := strings.Cut(string(out), "Version ")
	version, _, found := strings.Cut(rest, " ")
	if !found {
		return "", fmt.Errorf("ask ab for its version: unreadable answer %q", out)
	}
	return Name + " " + version, nil
}

// Job is what is asked of a server.
type Job struct {
	// Addr is the server's host and port. The page is /.
	Addr string `json:"addr"`
	// Requests is how many are made, by Connections at a time.
	Requests    int `json:"requests"`
	Connections int `json:"connections"`
	// KeepAlive has each connection kept for the next request; otherwise each request has one of
	// its own.
	KeepAlive bool `json:"keep_alive"`
}

func (j Job) args(percentiles string) []string {
	args := []string{"-q", "-n", strconv.Itoa(j.Requests), "-c", strconv.Itoa(j.Connections), "-e", percentiles}
	if j.KeepAlive {
		args = append(args, "-k")
	}
	return append(args, "http://"+j.Addr+"/")
}

// Run has the program do the job. When ctx ends it is killed, and the error matches the context's.
func (j Job) Run(ctx context.Context, program string) (r Result, err error) {
	dir, err := os.MkdirTemp("", "ringside-ab-")
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	percentiles := filepath.Join(dir, "percentiles.csv")
	cmd := exec.CommandContext(ctx, program, j.args(percentiles)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	measure.Isolate(cmd)
	err = cmd.Run()
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	if err != nil {
		return Result{}, fmt.Errorf("ab: %w: %s", err, strings.TrimSpace(said.String()))
	}
	exact, err := os.ReadFile(percentiles)
	if err != nil {
		return Result{}, err
	}
	if r, err = parse(out.Bytes(), exact); err != nil {
		return Result{}, err
	}
	return r, j.check(r)
}

// check wants every request to have had its answer.
func (j Job) check(r Result) error {
	if r.Requests != j.Requests || r.Failed > 0 {
		return fmt.Errorf("%s: %d of %d requests were answered, %d not as they should", Name, r.Requests, j.Requests, r.Failed)
	}
	return nil
}
