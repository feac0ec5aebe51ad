// SPDX-License-Identifier: MIT

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
)

// These are time limits: for a worker to finish its step, request or transaction at the end of a
// round (after that the worker counts as hanging), and for all workers after an interrupt.
const (
	patience    = time.Minute
	impatience  = 600 * time.Millisecond
	settleTime  = 20 * time.Second
	mostWritten = 10 // maximum number of recorded problems
)

// settled is settleTime. Tests that seed a leak shorten it.
var settled = settleTime

// errProblem is the cause of a run that ends early because of a failure.
var errProblem = errors.New("a check failed")

// soaker is the state of a run.
type soaker struct {
	o       Options
	dir     string
	begin   time.Time
	noRings error // why there are none
	uses    []string
	files   []string // files open before the first round
	fail    context.CancelCauseFunc

	round        atomic.Int64
	ops          map[string]*atomic.Int64
	errors       atomic.Int64
	inFlight     atomic.Int64
	seeds        atomic.Uint64
	environments sync.Map // *stress.KernelEnv in use

	mu       sync.Mutex
	problems []string
	closed   bool // problems are no longer recorded
	peak     Left
}

// Run soaks until the time is over, something fails, or the context is done; then it returns within
// a second. The error is the reason why it could not begin, or reports files that it could not
// remove.
func Run(ctx context.Context, o Options) (sum *Summary, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	mark, err := datafile.Create(ctx, o.Dir, datafile.UnitSize, o.Seed, nil)
	if err != nil {
		return nil, err
	}
	// The mark is locked. If this run is killed, the next run removes its files.
	defer func() { err = errors.Join(err, remove(mark)) }()
	s := &soaker{o: o, begin: time.Now(), ops: make(map[string]*atomic.Int64)}
	if s.dir, err = mark.Scratch(); err != nil {
		return nil, err
	}
	for _, row := range Rows {
		if o.has(row) {
			s.ops[row] = new(atomic.Int64)
		}
	}
	s.findRings()
	return s.run(ctx), nil
}

// remove removes the files of a run. After an interrupt, workers may still be creating some.
func remove(mark *datafile.File) error {
	err := mark.Remove()
	for range 10 {
		if err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
		err = mark.Remove()
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
	}
	return err
}

func (s *soaker) run(ctx context.Context) *Summary {
	sum := &Summary{Seed: s.o.Seed, Problems: []string{}, Uses: s.uses, Before: s.settle(ctx, Left{})}
	s.files = openFiles()
	work, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s.fail = fail
	s.begin = time.Now()
	over, stopLines := context.WithCancel(context.Background())
	var lines sync.WaitGroup
	lines.Go(func() { s.lines(over) })
	for work.Err() == nil && time.Since(s.begin) < s.o.For {
		s.round.Add(1)
		if !s.runRound(work) || work.Err() != nil {
			break
		}
		left := s.settle(work, sum.Before)
		if work.Err() != nil {
			break
		}
		sum.Left = append(sum.Left, left)
		s.judgeLeft(sum.Before, left)
		if len(sum.Left) >= soonest {
			s.judgeMemory(sum)
		}
	}
	stopLines()
	lines.Wait()
	s.conclude(ctx, sum)
	return sum
}

// soonest is the number of rounds after which growth ends a run. A shorter run is judged at its
// end.
const soonest = 12

// judgeMemory judges the growth over the rounds so far.
func (s *soaker) judgeMemory(sum *Summary) {
	var resident, heap []int64
	for _, l := range sum.Left {
		resident, heap = append(resident, l.Resident), append(heap, l.Heap)
	}
	// The memory that the allocator and the kernel keep for themselves varies.
	sum.Memory = []Growth{judgeGrowth("RSS", resident, 16<<20), judgeGrowth("heap in use", heap, 4<<20)}
	for _, g := range sum.Memory {
		if g.Grown {
			s.problem("%s", g)
		}
	}
}

// conclude fills the summary in.
func (s *soaker) conclude(ctx context.Context, sum *Summary) {
	if len(sum.Left) < soonest {
		s.judgeMemory(sum)
	}
	now := s.status()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	sum.Seconds, sum.Rounds, sum.Operations = now.Seconds, len(sum.Left), now.Operations
	sum.Problems, sum.Peak = append(sum.Problems, s.problems...), s.peak
	sum.Interrupted = ctx.Err() != nil
}

// problem records a failure, which ends the run.
func (s *soaker) problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.errors.Add(1)
	if len(s.problems) < mostWritten {
		s.problems = append(s.problems, fmt.Sprintf(format, args...))
	}
	s.fail(errProblem)
}

// round is one round of a run.
type round struct {
	*soaker
	number int
	// more ends when no new work may begin. cut ends when everything must stop at once, because of
	// an interrupt or a failure; errors after that are expected.
	more, cut context.Context
}

// problem records a failure in a row, unless the run is being cut off.
func (r *round) problem(row, format string, args ...any) {
	if r.cut.Err() == nil {
		r.soaker.problem("%s, round %d: %s", row, r.number, fmt.Sprintf(format, args...))
	}
}

// done counts operations of a row.
func (r *round) done(row string, n int) { r.ops[row].Add(int64(n)) }

// random returns the random source of a worker in this round.
func (r *round) random(who int) *rand.Rand {
	return rand.New(rand.NewPCG(r.o.Seed, uint64(r.number)<<32|uint64(who)))
}

// path returns the name of a file of this round.
func (r *round) path(format string, args ...any) string {
	return filepath.Join(r.dir, fmt.Sprintf("%d-", r.number)+fmt.Sprintf(format, args...))
}

// runRound runs all workers for one round and reports whether all of them ended.
func (s *soaker) runRound(work context.Context) bool {
	left := s.o.For - time.Since(s.begin)
	more, stop := context.WithTimeout(work, min(s.o.roundLength(), left))
	defer stop()
	r := &round{s, int(s.round.Load()), more, work}
	over := make(chan struct{})
	go func() {
		defer close(over)
		var all sync.WaitGroup
		for _, part := range r.parts() {
			all.Go(part)
		}
		all.Wait()
	}()
	return s.ends(r, over)
}

// ends waits for the end of a round. Whatever does not end is reported as hanging, unless the run
// is interrupted.
func (s *soaker) ends(r *round, over chan struct{}) bool {
	select {
	case <-over:
		return true
	case <-r.more.Done():
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-over:
		return true
	case <-late.C:
		r.problem("hang", "not all have ended a minute after the round\n%s", stacks())
	case <-r.cut.Done():
	}
	select {
	case <-over:
		return true
	case <-time.After(impatience):
	}
	return false
}

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

// parts returns the functions that run concurrently in a round.
func (r *round) parts() []func() {
	var parts []func()
	if r.o.Replay != 0 {
		return append(parts, func() { r.scenarios(r.o.Rows[0], func() uint64 { return r.o.Replay }) })
	}
	for _, row := range []string{Files, Sockets, Watch} {
		if !r.o.has(row) {
			continue
		}
		for range environmentsOfRow() {
			parts = append(parts, func() { r.scenarios(row, r.nextSeed) })
		}
	}
	if r.o.has(Sockets) {
		parts = append(parts, r.echoServers()...)
		parts = append(parts, r.http)
	}
	if r.o.has(SQLite) {
		parts = append(parts, r.databases()...)
	}
	if r.o.extra != nil {
		parts = append(parts, r.o.extra)
	}
	return parts
}

// nextSeed returns the seed of a scenario that has not run yet.
func (s *soaker) nextSeed() uint64 { return s.o.Seed<<24 + s.seeds.Add(1) }

// judgeLeft compares the resources after a round with those before the first.
func (s *soaker) judgeLeft(before, left Left) {
	if n := left.Descriptors - before.Descriptors; n > 0 {
		s.problem("leak: %d descriptors are left at the end of round %d: %s", n, s.round.Load(), strings.Join(opened(s.files, openFiles()), ", "))
	}
	if n := left.Goroutines - before.Goroutines; n > 0 {
		s.problem("leak: %d goroutines are left at the end of round %d\n%s", n, s.round.Load(), stacks())
	}
}
