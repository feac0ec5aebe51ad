// SPDX-License-Identifier: MIT

package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Process starts a program as a worker: it reads a job as JSON from its standard input and writes
// its answer as JSON to its standard output.
type Process struct {
	// Path is the program, Args what follows its name.
	Path string
	Args []string
	// Env is the worker's environment; nil means that of this process.
	Env []string
}

// killGrace is how long a killed worker's output is awaited.
const killGrace = 2 * time.Second

// Run starts the program, hands it the job and decodes its answer. The worker's input stays open
// until it ends, which tells the worker that its parent still waits for it. When ctx ends the worker
// is killed with all it started, and the error matches the context's.
func (p Process) Run(ctx context.Context, job, answer any) error {
	encoded, err := json.Marshal(job)
	if err != nil {
		return err
	}
	out, err := p.output(ctx, append(encoded, '\n'))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("answer of the worker process: %w", err)
	}
	return nil
}

func (p Process) output(ctx context.Context, job []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, p.Path, p.Args...)
	cmd.Env = p.Env
	var stdout bytes.Buffer
	stderr := &tail{limit: 4096}
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	Isolate(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker process: %w", err)
	}
	// A worker that died early has closed the pipe; what it said is worth more than EPIPE.
	_, writeErr := stdin.Write(job)
	if err := cmd.Wait(); err != nil {
		return nil, workerError(err, stderr.String())
	}
	return stdout.Bytes(), writeErr
}

// workerError prefers what the worker said over how it ended.
func workerError(err error, said string) error {
	if said = strings.TrimSpace(said); said == "" {
		return fmt.Errorf("worker process: %w", err)
	}
	return &WorkerError{Said: said, Err: err}
}

// WorkerError is the failure of a worker process that explained itself.
type WorkerError struct {
	// Said is the end of the worker's standard error.
	Said string
	// Err tells how the process ended.
	Err error
}

// Error returns what the worker said.
func (e *WorkerError) Error() string { return e.Said }

// Unwrap returns how the process ended.
func (e *WorkerError) Unwrap() error { return e.Err }

// tail keeps the last bytes written to it.
type tail struct {
	limit int
	buf   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.buf) }

// errOrphaned ends a worker whose parent is gone.
var errOrphaned = errors.New("the parent process is gone")
