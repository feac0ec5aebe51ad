// SPDX-License-Identifier: MIT

// Package suite runs the benchmark suites of the command line. It plans the grid, prepares files
// and programs, runs the rounds and collects a report. The caller provides the function that runs a
// round.
package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// Timing is how long a suite measures. The options of all suites embed it.
type Timing struct {
	// Pairs is the number of interleaved rounds of each engine (0: 5). Duration is the length of a
	// measured window (0: 200 ms).
	Pairs    int
	Duration time.Duration
	// Repeat limits the time for repeating undecided cells, as a percentage of the time of all
	// rounds; 0 repeats none.
	Repeat int
}

// between returns an error if a value of a flag is out of bounds, or not a multiple of step.
func between(flag string, values []int, low, high, step int) error {
	for _, v := range values {
		switch {
		case v < low || v > high:
			return fmt.Errorf("--%s %d: must be between %d and %d", flag, v, low, high)
		case v%step != 0:
			return fmt.Errorf("--%s %d: must be a multiple of %d", flag, v, step)
		}
	}
	return nil
}

func (t Timing) validate() error {
	switch {
	case t.Pairs < 0:
		return fmt.Errorf("--pairs %d: must not be negative", t.Pairs)
	case t.Duration < 0:
		return fmt.Errorf("--duration %v: must not be negative", t.Duration)
	case t.Repeat < 0:
		return fmt.Errorf("--repeat %d: must not be negative", t.Repeat)
	}
	return nil
}

// setDefaults sets the options that are zero.
func (t *Timing) setDefaults() {
	if t.Pairs == 0 {
		t.Pairs = 5
	}
	if t.Duration == 0 {
		t.Duration = 200 * time.Millisecond
	}
}

// runner has the parts that all suites share: the report and the rounds.
type runner struct {
	suite    string
	timing   Timing
	progress Progress
	run      *report.Run
	// stolen begins to observe the time that the host takes. If it is nil, every round counts.
	stolen func() (share func() float64)
	rounds struct {
		kept, repeated int
		took, lost     float64 // seconds of the kept rounds, and of these the host's
	}
}

// hostStolen is [hostinfo.Stolen], except in tests whose rounds take no time: a tick of the host's
// clock would be a large share of such a round.
var hostStolen = hostinfo.Stolen

// newRunner begins a report about the machine and the storage of path.
func newRunner(suite string, t Timing, p Progress, path string) runner {
	r := runner{suite: suite, timing: t, progress: p, run: &report.Run{Host: hostinfo.Collect(path)}, stolen: hostStolen}
	r.run.Host.Pairs = t.Pairs
	r.run.Host.DurationMs = float64(t.Duration) / float64(time.Millisecond)
	if t.Repeat > 0 {
		r.run.Host.Looks = looks
	}
	return r
}

func (r *runner) skip(s report.Skip) {
	s.Suite = r.suite
	r.run.Skipped = append(r.run.Skipped, s)
}

// note adds a sentence to the report unless the report already has it.
func (r *runner) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.run.Notes, text) {
		r.run.Notes = append(r.run.Notes, text)
	}
}

// peer adds the version of a foreign program to the report.
func (r *runner) peer(version string) {
	if !slices.Contains(r.run.Host.Peers, version) {
		r.run.Host.Peers = append(r.run.Host.Peers, version)
	}
}

// makeFile creates a file to read in dir. The seed of its content is that of the report.
func (r *runner) makeFile(ctx context.Context, m datafile.Maker, dir string, size int64) (*datafile.File, error) {
	// A directory that cannot be listed may still take a new file.
	if stale, err := datafile.Sweep(dir); err == nil {
		for _, path := range stale {
			r.note("removed %s, which a killed run had left", path)
		}
	}
	r.progress.Start(size, "writing the test file")
	made, err := m.Make(ctx, dir, size, r.run.Host.Seed, r.progress.Add)
	if err != nil {
		return nil, err
	}
	if made.Size() < size {
		r.note("the test file has %d MiB instead of %d: %s has no room for more", made.Size()>>20, size>>20, dir)
	}
	return made, nil
}

// point is one series of interleaved rounds, usually of one cell.
type point struct {
	workload string
	params   report.Params
	engines  []string
	// prepare, if not nil, runs before the rounds.
	prepare func(context.Context) error
	// round runs one engine once. All rounds of one pair do the same work.
	round func(ctx context.Context, engine string, pair int) (report.Sample, error)
	// split, if not nil, turns the samples into several cells.
	split func([]report.Series) []report.Cell
	// skips, if not nil, reports whether an error skips the point instead of ending the run.
	skips func(error) bool

	series    []report.Series
	at, cells int // indices of the point's cells in the report
}

// String describes the point in errors and next to the progress bar.
func (p *point) String() string { return describe(p.workload, p.params) }

func describe(workload string, p report.Params) string {
	return strings.Join(append([]string{workload}, p.Words()...), ", ")
}

// looks is the maximum number of times that a cell is judged: after its first rounds, and after
// each repetition.
const looks = 4

// measure runs all points, then repeats the undecided ones.
func (r *runner) measure(ctx context.Context, points []point) error {
	defer r.reportStolen()
	rounds, began := 0, time.Now()
	for _, p := range points {
		rounds += r.timing.Pairs * len(p.engines)
	}
	r.progress.Start(int64(rounds), "measuring")
	for i := range points {
		p := &points[i]
		err := r.interleave(ctx, p)
		switch {
		case err == nil:
			cells := p.report(r.suite)
			p.at, p.cells = len(r.run.Cells), len(cells)
			r.run.Cells = append(r.run.Cells, cells...)
		case ctx.Err() != nil:
			return fmt.Errorf("stopped after %d of %d cells: %w", i, len(points), context.Cause(ctx))
		case p.skips != nil && p.skips(err):
			r.skip(report.Skip{Workload: p.workload, Params: p.params, Reason: err.Error()})
		default:
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return r.repeat(ctx, points, time.Since(began)*time.Duration(r.timing.Repeat)/100)
}

// interleave measures the point with as many pairs as the options say, in addition to those it has.
func (r *runner) interleave(ctx context.Context, p *point) error {
	if p.prepare != nil {
		if err := p.prepare(ctx); err != nil {
			return err
		}
	}
	if p.series == nil {
		for _, name := range p.engines {
			p.series = append(p.series, report.Series{Engine: name})
		}
	}
	first := len(p.series[0].Samples)
	samples, err := measure.Interleave(ctx, r.timing.Pairs, p.engines,
		func(ctx context.Context, name string, pair int) (report.Sample, error) {
			r.progress.Note("%s", p)
			s, err := r.undisturbed(func() (report.Sample, error) { return p.round(ctx, name, first+pair) })
			if err != nil {
				return s, fmt.Errorf("engine %s: %w", name, err)
			}
			r.progress.Add(1)
			return s, nil
		})
	for i := range samples {
		p.series[i].Samples = append(p.series[i].Samples, samples[i]...)
	}
	return err
}

// Hosts take time from a virtual machine in bursts of about a second, which only a few rounds meet.
// Such a round is measured again. Which engine it measured does not matter, nor its result.
const (
	// maxLost is the share of a round's time that the host may take.
	maxLost = 0.05
	// maxTries is how often a round is measured at most.
	maxTries = 3
)

// undisturbed measures a round, again if the host disturbed it. At most half as many rounds are
// repeated as were kept.
func (r *runner) undisturbed(round func() (report.Sample, error)) (report.Sample, error) {
	if r.stolen == nil {
		return round()
	}
	for try := 1; ; try++ {
		share, began := r.stolen(), time.Now()
		s, err := round()
		lost, took := share(), time.Since(began).Seconds()
		if err == nil && lost > maxLost && try < maxTries && r.rounds.repeated <= r.rounds.kept/2 {
			r.rounds.repeated++
			continue
		}
		r.rounds.kept++
		r.rounds.took += took
		r.rounds.lost += lost * took
		return s, err
	}
}

// reportStolen reports the time that the host took.
func (r *runner) reportStolen() {
	if r.rounds.took > 0 {
		r.run.Host.Stolen = r.rounds.lost / r.rounds.took
	}
	if n := r.rounds.repeated; n > 0 {
		r.note("%s: %d repetitions of %d rounds, because the host took more than %.0f %% of the machine's time during a round",
			r.suite, n, r.rounds.kept, 100*maxLost)
	}
}

// report returns the point's cells.
func (p *point) report(suite string) []report.Cell {
	if p.split != nil {
		return p.split(p.series)
	}
	return []report.Cell{{Suite: suite, Workload: p.workload, Params: p.params, Series: p.series}}
}

// repeat measures the points with undecided cells again, in turn, until the budget is spent. The
// report judges every cell at a level that allows for the number of looks. So repeating until there
// is a verdict does not find more differences by chance.
func (r *runner) repeat(ctx context.Context, points []point, budget time.Duration) error {
	again := map[int]bool{}
	for look, end := 1, time.Now().Add(budget); look < looks && time.Now().Before(end); look++ {
		undecided := r.run.Undecided()
		var open []int
		for i, p := range points {
			if slices.Contains(undecided[p.at:p.at+p.cells], true) {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			break
		}
		rounds := 0
		for _, i := range open {
			rounds += r.timing.Pairs * len(points[i].engines)
		}
		r.progress.Start(int64(rounds), "repeating what is undecided")
		for _, i := range open {
			if !time.Now().Before(end) {
				break
			}
			p := &points[i]
			if err := r.interleave(ctx, p); err != nil {
				if ctx.Err() != nil {
					return fmt.Errorf("stopped while undecided cells were measured again: %w", context.Cause(ctx))
				}
				if p.skips != nil && p.skips(err) {
					continue // The earlier samples stay.
				}
				return fmt.Errorf("%s: %w", p, err)
			}
			again[i] = true
			copy(r.run.Cells[p.at:], p.report(r.suite))
		}
	}
	if len(again) > 0 {
		r.note("%s: %d points that were undecided after %d pairs were measured again, with up to %d pairs",
			r.suite, len(again), r.timing.Pairs, looks*r.timing.Pairs)
	}
	return nil
}

// sampleOf converts a worker's sample to one of the report.
func sampleOf(s measure.Sample) report.Sample {
	return report.Sample{Iterations: s.Ops, Metrics: s.Metrics()}
}

// addDeviceShare adds the share of the bytes that came from the device. It is 1 if nothing was
// cached or read ahead.
func addDeviceShare(out report.Sample, s measure.Sample) {
	if s.Bytes > 0 {
		out.Metrics[report.DeviceShare] = float64(s.DeviceReads) / float64(s.Bytes)
	}
}
