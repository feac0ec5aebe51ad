// SPDX-License-Identifier: MIT

package measure

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

// Player is an engine that lives during a comparison and takes turns with others. Between two turns
// it is idle.
type Player interface {
	// Turn measures a window of d.
	Turn(d time.Duration) (Sample, error)
	// Close lets the engine check its work and ends it. It returns the engine's error.
	Close() error
}

// Session is a worker process that takes turns.
type Session struct {
	ctx  context.Context
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	said *tail
	err  error
}

var _ Player = (*Session)(nil)

// Open starts the program, sends it the job, and waits until it is ready for its first turn. When ctx
// ends, the worker and its children are killed.
func (p Process) Open(ctx context.Context, job any) (*Session, error) {
	s := &Session{ctx: ctx, cmd: exec.CommandContext(ctx, p.Path, p.Args...), said: &tail{limit: 4096}}
	s.cmd.Env, s.cmd.Stderr = p.Env, s.said
	Isolate(s.cmd)
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.in, s.out = in, json.NewDecoder(bufio.NewReader(out))
	start := s.cmd.Start
	if p.Around != nil {
		start = func() error { return p.Around(s.cmd.Start) }
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("start a worker process: %w", err)
	}
	var ready string
	if err := s.exchange(job, &ready); err != nil {
		return nil, err
	}
	return s, nil
}

// exchange writes a line and decodes the answer. A failure ends the process.
func (s *Session) exchange(line, answer any) error {
	encoded, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = s.in.Write(append(encoded, '\n'))
	if err == nil {
		err = s.out.Decode(answer)
	}
	if err != nil {
		s.err = s.end(err)
	}
	return s.err
}

// end waits for the process, and returns its error or else the given one.
func (s *Session) end(err error) error {
	_ = s.in.Close() // the process ends at the end of its input
	if waitErr := s.cmd.Wait(); waitErr != nil {
		err = workerError(waitErr, s.said.String())
	}
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	return err
}

// Turn asks the worker for one turn.
func (s *Session) Turn(d time.Duration) (sample Sample, err error) {
	if s.err != nil {
		return sample, s.err
	}
	return sample, s.exchange(d, &sample)
}

// Close ends the worker and waits until it has checked its work.
func (s *Session) Close() error {
	if s.err != nil {
		return nil // It was returned.
	}
	_ = s.in.Close()
	var last json.RawMessage
	decodeErr := s.out.Decode(&last)
	s.err = s.end(decodeErr)
	return s.err
}

// Duel lets players take turns of d, one of each in a pair, for as long as more holds of the number of
// finished pairs. Within a pair their order is random, so that no player always follows the same one.
// turn is called for each turn.
func Duel(ctx context.Context, players []Player, d time.Duration, more func(pair int) bool,
	turn func(player int, s Sample) error,
) error {
	for pair := 0; more(pair); pair++ {
		for _, i := range rand.Perm(len(players)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			s, err := players[i].Turn(d)
			if err == nil {
				err = turn(i, s)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
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
