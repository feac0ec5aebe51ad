// SPDX-License-Identifier: MIT

package measure

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"time"
)

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
