// SPDX-License-Identifier: MIT

// Package workload defines the measured operations for both the command line and go test -bench.
package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/ycsb"
	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
)

// Job describes one round of a worker process. With an empty Workload the worker only reports which
// backend the engine uses.
type Job struct {
	Suite    string `json:"suite"`
	Workload string `json:"workload"`
	Engine   string `json:"engine"`
	// Turning is set if the job takes turns with the same job of other engines.
	Turning    bool          `json:"turning,omitempty"`
	Goroutines int           `json:"goroutines"`
	Warm       time.Duration `json:"warm_ns"`
	Measure    time.Duration `json:"measure_ns"`
	RandRead   *RandRead     `json:"randread,omitempty"`
	Batch      *Batch        `json:"batch,omitempty"`
	Append     *Append       `json:"append,omitempty"`
	Burner     *Burner       `json:"burner,omitempty"`
	Open       *Open         `json:"open,omitempty"`
	RandWrite  *RandWrite    `json:"randwrite,omitempty"`
	Nop        *Nop          `json:"nop,omitempty"`
	Reads      *Reads        `json:"reads,omitempty"`
	Watch      *Watch        `json:"watch,omitempty"`
	HTTP       *HTTP         `json:"http,omitempty"`
	YCSB       *ycsb.Job     `json:"ycsb,omitempty"`

	SQLite *sqlitebench.Job `json:"sqlite,omitempty"`

	turns measure.Turns
}

// TakeTurns makes the job measure in turns instead of one window of the length Measure. Only a job for
// which [Job.Turning] holds may take turns.
func (j *Job) TakeTurns(t measure.Turns) {
	if j.Turning {
		j.turns = t
	}
}

// Run runs the job in this process.
func (j Job) Run(ctx context.Context) (measure.Sample, error) {
	switch { // These workloads open no files through an engine.
	case j.Watch != nil:
		return j.watch(ctx)
	case j.HTTP != nil:
		return j.http(ctx)
	case j.SQLite != nil:
		return j.sqlite(ctx)
	}
	e, err := engine.Lookup(j.Engine)
	if err != nil {
		return measure.Sample{}, err
	}
	return j.RunWith(ctx, e)
}

// RunWith runs the job with e instead of the engine that the job names.
func (j Job) RunWith(ctx context.Context, e engine.Engine) (measure.Sample, error) {
	var s measure.Sample
	var err error
	switch {
	case j.Workload == "":
	case j.RandRead != nil && j.RandRead.Cold:
		s, err = j.coldRead(ctx, e)
	case j.RandRead != nil:
		s, err = j.randRead(ctx, e)
	case j.Batch != nil:
		s, err = j.batch(ctx, e)
	case j.Append != nil:
		s, err = j.append(ctx, e)
	case j.Burner != nil:
		s, err = j.burner(ctx, e)
	case j.Open != nil:
		s, err = j.open(ctx, e)
	case j.RandWrite != nil:
		s, err = j.randWrite(ctx, e)
	case j.YCSB != nil:
		s, err = j.YCSB.Run(ctx, e.Name() == engine.NameRingside, j.plan())
	case j.Ring() != nil && e.Name() == engine.NameRingside:
		return j.ring(ctx) // It opens a ring itself: the engine's backend for files does not matter.
	default:
		return measure.Sample{}, fmt.Errorf("unknown workload %s/%s for engine %s", j.Suite, j.Workload, e.Name())
	}
	if err != nil {
		return measure.Sample{}, err
	}
	s.Backend, s.Reason = e.Backend()
	return s, nil
}

// plan returns the goroutines and times of the job.
func (j Job) plan() measure.Plan {
	return measure.Plan{Goroutines: j.Goroutines, Warm: j.Warm, Measure: j.Measure, Turns: j.turns}
}

func (j Job) randRead(ctx context.Context, e engine.Engine) (s measure.Sample, err error) {
	newOp, closeFile, err := j.RandRead.Open(e)
	if err != nil {
		return measure.Sample{}, err
	}
	defer func() { err = errors.Join(err, closeFile()) }()
	return measure.Run(ctx, j.plan(), newOp)
}

// Ring returns the workload of the suite "ring", or nil if the job has none.
func (j Job) Ring() RingWork {
	switch {
	case j.Nop != nil:
		return j.Nop
	case j.Reads != nil:
		return j.Reads
	}
	return nil
}

// ring runs a round of the suite "ring".
func (j Job) ring(ctx context.Context) (s measure.Sample, err error) {
	op, closeRing, err := j.Ring().Open()
	if err != nil {
		return measure.Sample{}, err
	}
	defer func() { err = errors.Join(err, closeRing()) }()
	plan := j.plan()
	plan.Goroutines, plan.Adjust = 1, unitsOf(j.Ring().Ops())
	return measure.Run(ctx, plan, func(int) (measure.Op, error) { return op, nil })
}

// unitsOf returns a function that reports n units for each measured operation.
func unitsOf(n int) func(*measure.Sample) error {
	return func(s *measure.Sample) error {
		s.Ops *= int64(n)
		s.P50, s.P99, s.Max = 0, 0, 0 // Latencies are those of operations, not of units.
		return nil
	}
}

// sqlite runs a round of the suite "sqlite".
func (j Job) sqlite(ctx context.Context) (measure.Sample, error) {
	return j.SQLite.Run(ctx, j.Engine, measure.Plan{Warm: j.Warm, Measure: j.Measure, Turns: j.turns})
}

// ErrNoDirect is matched by the error of [ProbeDirect] where O_DIRECT does not work.
var ErrNoDirect = errors.New("the file system has no O_DIRECT")

// ProbeDirect opens the file with O_DIRECT and reads its first block. Some file systems refuse
// the flag, others only the read.
func ProbeDirect(e engine.Engine, path string) error {
	f, err := e.OpenRead(path, true)
	if err != nil {
		return noDirect(err)
	}
	defer f.Close()
	n, err := f.ReadAt(alignedBuffer(bufferAlign), 0)
	if err != nil && (n == 0 || !errors.Is(err, io.EOF)) {
		return noDirect(err)
	}
	return nil
}

// noDirect wraps errors that mean that O_DIRECT is not supported in ErrNoDirect, and returns other
// errors unchanged.
func noDirect(err error) error {
	if errors.Is(err, errors.ErrUnsupported) || isInvalid(err) {
		return fmt.Errorf("%w: %w", ErrNoDirect, err)
	}
	return err
}
