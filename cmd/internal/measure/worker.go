// SPDX-License-Identifier: MIT

package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// Process starts a program as a worker: it reads a job as JSON from its standard input and writes
// its answer as JSON to its standard output.
type Process struct {
	// Path is the program, Args are its arguments.
	Path string
	Args []string
	// Env is the worker's environment. Nil means the environment of this process.
	Env []string
	// Around, if not nil, calls the function that starts the process.
	Around func(start func() error) error
}

// killGrace limits how long the output of a killed worker is awaited.
const killGrace = 2 * time.Second

// Run starts the program, sends it the job and decodes its answer. The worker's input stays open
// until the worker ends; its end shows the worker that the parent is gone. When ctx ends, Run kills
// the worker and its children, and the error matches that of the context.
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
	// A worker that died early has closed the pipe. Its message explains more than EPIPE.
	_, writeErr := stdin.Write(job)
	if err := cmd.Wait(); err != nil {
		return nil, workerError(err, stderr.String())
	}
	return stdout.Bytes(), writeErr
}

// workerError returns the worker's message if there is one, or else its exit status.
func workerError(err error, said string) error {
	if said = strings.TrimSpace(said); said == "" {
		return fmt.Errorf("worker process: %w", err)
	}
	return &WorkerError{Said: said, Err: err}
}

// WorkerError is the failure of a worker process with a message.
type WorkerError struct {
	// Said is the end of the worker's standard error.
	Said string
	// Err is the exit status of the process.
	Err error
}

// Error returns the worker's message.
func (e *WorkerError) Error() string { return e.Said }

// Unwrap returns the exit status.
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

// worker repeats one operation and records it. It belongs to one goroutine; others read it only
// while that goroutine waits.
type worker struct {
	op      Op
	latency Histogram
	ops     int64
	bytes   int64
	max     time.Duration
	err     error
	// base lets time.Since read only the monotonic clock, at half the cost of time.Now.
	base time.Time
}

func newWorker(op Op) *worker {
	return &worker{op: op, base: time.Now()}
}

func (w *worker) reset() {
	w.latency = Histogram{}
	w.ops, w.bytes, w.max = 0, 0, 0
}

// repeat runs the operation until stop is set, but at least once: a short window on a busy machine
// may end before the goroutine gets a processor. It does not allocate.
func (w *worker) repeat(stop *atomic.Bool) error {
	last := time.Since(w.base)
	for {
		n, err := w.op()
		if err != nil {
			return err
		}
		now := time.Since(w.base)
		w.record(now - last)
		last = now
		w.ops++
		w.bytes += int64(n)
		if stop.Load() {
			return nil
		}
	}
}

func (w *worker) record(d time.Duration) {
	w.max = max(w.max, d)
	w.latency.Record(d)
}

// Output runs a command of another program and returns its standard output. The error of a failed
// command contains its output, as formatted by said if that is not nil. When ctx, the command's
// context, ends, the command is killed and the error is that of the context.
func Output(ctx context.Context, cmd *exec.Cmd, said func(stderr, stdout string) string) ([]byte, error) {
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	Isolate(cmd)
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		text := strings.TrimSpace(stderr.String() + out.String())
		if said != nil {
			text = said(stderr.String(), out.String())
		}
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, text)
	}
	return out.Bytes(), nil
}

// Turner is a job that may take turns. TakeTurns gives it the turns, if it takes them.
type Turner interface{ TakeTurns(Turns) }

// ServeWorker is the worker's side of [Process] and [Session]. It reads one job from in, calls handle
// and writes the answer to out. If the job is a [Turner] whose input continues with lengths of turns
// in nanoseconds, it writes a sample for each. The context of handle ends when in ends before the
// answer, or during a turn: then the parent has died, and no answer is written.
func ServeWorker[Job, Answer any](ctx context.Context, in io.Reader, out io.Writer,
	handle func(context.Context, Job) (Answer, error),
) error {
	var job Job
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	asked := make(chan time.Duration)
	turns := &workerTurns{ctx: ctx, asked: asked, out: json.NewEncoder(out)}
	if t, ok := any(&job).(Turner); ok {
		t.TakeTurns(turns)
	}
	go func() {
		defer close(asked)
		for {
			var d time.Duration
			if decoder.Decode(&d) != nil {
				if !turns.waiting.Load() {
					cancel(errOrphaned)
				}
				return
			}
			select {
			case asked <- d:
			case <-ctx.Done():
				return
			}
		}
	}()
	answer, err := handle(ctx, job)
	if errors.Is(err, context.Canceled) {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

// workerTurns are the turns that a parent process asks for.
type workerTurns struct {
	ctx     context.Context
	asked   <-chan time.Duration
	out     *json.Encoder
	waiting atomic.Bool // for the next turn
	ready   bool
}

// Next says once that the worker is ready, and waits for the next turn.
func (t *workerTurns) Next() (time.Duration, bool) {
	t.waiting.Store(true)
	if !t.ready {
		t.ready = true
		if t.out.Encode(readyLine) != nil {
			return 0, false
		}
	}
	select {
	case d, more := <-t.asked:
		t.waiting.Store(false)
		return d, more
	case <-t.ctx.Done():
		return 0, false
	}
}

// Report writes the sample of a turn.
func (t *workerTurns) Report(s Sample) error {
	t.waiting.Store(true)
	return t.out.Encode(s)
}

// readyLine is what a worker writes before its first turn.
const readyLine = "ready"
