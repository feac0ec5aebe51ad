// SPDX-License-Identifier: MIT

// Package workload defines the measured operations for both the command line and go test -bench.
package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/ycsb"
	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
)

// Job describes one round of a worker process. Without Work the worker only reports which backend
// the engine uses.
type Job struct {
	Suite    string `json:"suite"`
	Workload string `json:"workload"`
	Engine   string `json:"engine"`
	// Turning is set if the job takes turns with the same job of other engines.
	Turning    bool          `json:"turning,omitempty"`
	Goroutines int           `json:"goroutines"`
	Warm       time.Duration `json:"warm_ns"`
	Measure    time.Duration `json:"measure_ns"`
	// Work is what the round does.
	Work Work `json:"work,omitempty"`

	turns measure.Turns
}

// Work is what a round does. Each workload has a type, which must be in works.
type Work interface {
	// Run runs a round with the engine of this name.
	Run(ctx context.Context, engine string, plan measure.Plan) (measure.Sample, error)
}

// fileWork is work with an engine for files.
type fileWork interface {
	Work
	runWith(ctx context.Context, e engine.Engine, plan measure.Plan) (measure.Sample, error)
}

// works are the types that a job in JSON may have as its work.
var works = []Work{
	&RandRead{}, &Batch{}, &Append{}, &Burner{}, &Open{}, &RandWrite{}, &YCSB{},
	&Nop{}, &Reads{}, &Watch{}, &HTTP{},
	&sqlitebench.Speed{}, &sqlitebench.Tenants{}, &sqlitebench.Cold{},
}

// kind is the name of the work's type in JSON.
func kind(w Work) string { return fmt.Sprintf("%T", w) }

// jobFields are a job without methods.
type jobFields Job

// MarshalJSON adds the type of the work.
func (j Job) MarshalJSON() ([]byte, error) {
	out := struct {
		jobFields
		Kind string `json:"kind,omitempty"`
	}{jobFields: jobFields(j)}
	if j.Work != nil {
		out.Kind = kind(j.Work)
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (j *Job) UnmarshalJSON(b []byte) error {
	in := struct {
		*jobFields
		Kind string          `json:"kind"`
		Work json.RawMessage `json:"work"`
	}{jobFields: (*jobFields)(j)}
	if err := json.Unmarshal(b, &in); err != nil || in.Kind == "" {
		return err
	}
	i := slices.IndexFunc(works, func(w Work) bool { return kind(w) == in.Kind })
	if i < 0 {
		return fmt.Errorf("unknown work %q", in.Kind)
	}
	j.Work = reflect.New(reflect.TypeOf(works[i]).Elem()).Interface().(Work)
	return json.Unmarshal(in.Work, j.Work)
}

// TakeTurns makes the job measure in turns instead of one window of the length Measure. Only a job for
// which [Job.Turning] holds may take turns.
func (j *Job) TakeTurns(t measure.Turns) {
	if j.Turning {
		j.turns = t
	}
}

// Run runs the job in this process.
func (j Job) Run(ctx context.Context) (s measure.Sample, err error) {
	if j.Work != nil {
		return j.Work.Run(ctx, j.Engine, j.plan())
	}
	if j.Workload != "" {
		return s, fmt.Errorf("unknown workload %s/%s", j.Suite, j.Workload)
	}
	e, err := engine.Lookup(j.Engine)
	if err == nil {
		s.Backend, s.Reason = e.Backend()
	}
	return s, err
}

// plan returns the goroutines and times of the job.
func (j Job) plan() measure.Plan {
	return measure.Plan{Goroutines: j.Goroutines, Warm: j.Warm, Measure: j.Measure, Turns: j.turns}
}

// onFiles runs a round of w with the engine for files of this name.
func onFiles(ctx context.Context, w fileWork, name string, plan measure.Plan) (measure.Sample, error) {
	e, err := engine.Lookup(name)
	if err != nil {
		return measure.Sample{}, err
	}
	s, err := w.runWith(ctx, e, plan)
	if err != nil {
		return measure.Sample{}, err
	}
	s.Backend, s.Reason = e.Backend()
	return s, nil
}

// YCSB is operations of the database pebble.
type YCSB struct{ ycsb.Job }

// Run implements [Work].
func (w *YCSB) Run(ctx context.Context, name string, plan measure.Plan) (measure.Sample, error) {
	return onFiles(ctx, w, name, plan)
}

func (w *YCSB) runWith(ctx context.Context, e engine.Engine, plan measure.Plan) (measure.Sample, error) {
	return w.Job.Run(ctx, e.Name() == engine.NameRingside, plan)
}

// unitsOf returns a function that reports n units for each measured operation.
func unitsOf(n int) func(*measure.Sample) error {
	return func(s *measure.Sample) error {
		s.Ops *= int64(n)
		s.P50, s.P99, s.Max = 0, 0, 0 // Latencies are those of operations, not of units.
		return nil
	}
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
