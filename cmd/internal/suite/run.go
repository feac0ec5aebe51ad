// SPDX-License-Identifier: MIT

// Package suite runs the benchmark suites of the command line. It plans the grid, prepares files
// and programs, runs the rounds and collects a report. The caller provides the function that runs a
// round.
package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// Timing is how long a suite measures. The options of all suites embed it.
type Timing struct {
	// Time is how long two engines take turns in a cell (0: 4 s), together with their starts. More
	// engines take longer. Starts is how often they are started anew in that time. Turn is the length
	// of a turn; 0 means that of the workload, see turns.
	Time   time.Duration
	Starts int
	Turn   time.Duration
	// Null compares each engine with itself.
	Null bool
	// Pairs is the number of interleaved rounds of each engine (0: 5) in cells whose engines cannot
	// take turns. Duration is the length of a round's window (0: 200 ms).
	Pairs    int
	Duration time.Duration
}

// turns are the lengths of turns by suite and workload, from results/notes/bench.md. A workload without an
// entry is measured in rounds.
var turns = map[string]time.Duration{
	"file/randread": 20 * time.Millisecond, "file/batch": 20 * time.Millisecond, "file/open": 20 * time.Millisecond,
	"file/append":  20 * time.Millisecond,
	"watch/events": 40 * time.Millisecond, "sqlite/tenants": 40 * time.Millisecond,
	"net/echo": 20 * time.Millisecond, "net/tls": 20 * time.Millisecond, "net/http": 20 * time.Millisecond,
	"net/fasthttp": 20 * time.Millisecond, "net/handlers": 40 * time.Millisecond, "net/pipeline": 20 * time.Millisecond,
	"net/stream": 40 * time.Millisecond, "net/churn": 40 * time.Millisecond, "net/dial": 40 * time.Millisecond,
	"net/unix": 20 * time.Millisecond, "net/udp": 20 * time.Millisecond, "net/udp-bulk": 20 * time.Millisecond,
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
	case t.Starts < 0:
		return fmt.Errorf("--starts %d: must not be negative", t.Starts)
	case t.Time < 0:
		return fmt.Errorf("--time %v: must not be negative", t.Time)
	}
	return nil
}

// setDefaults sets the options that are zero.
func (t *Timing) setDefaults() {
	if t.Time == 0 {
		t.Time = 4 * time.Second
	}
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
		took, lost float64 // seconds of all cells, and of these the host's
	}
}

// hostStolen is [hostinfo.Stolen], except in tests whose rounds take no time: a tick of the host's
// clock would be a large share of such a round.
var hostStolen = hostinfo.Stolen

// newRunner begins a report about the machine and the storage of path.
func newRunner(suite string, t Timing, p Progress, path string) runner {
	r := runner{suite: suite, timing: t, progress: p, run: &report.Run{Host: hostinfo.Collect(path)}, stolen: hostStolen}
	r.run.Host.Pairs = t.Pairs
	r.run.Host.Starts = t.Starts
	r.run.Host.DurationMs = float64(t.Duration) / float64(time.Millisecond)
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

// point is one comparison, usually of one cell.
type point struct {
	workload string
	params   report.Params
	engines  []string
	// prepare, if not nil, runs before anything is measured.
	prepare func(context.Context) error
	// round runs one engine once. All rounds of one pair do the same work.
	round func(ctx context.Context, engine string, pair int) (report.Sample, error)
	// open starts an engine that takes turns. An engine that cannot returns errors.ErrUnsupported.
	open func(ctx context.Context, engine string, pair int) (measure.Player, error)
	// sample, if not nil, replaces [sampleOf].
	sample func(engine string, s measure.Sample) report.Sample
	// split, if not nil, turns the samples into several cells.
	split func([]report.Series) []report.Cell
	// skips, if not nil, reports whether an error skips the point instead of ending the run.
	skips func(error) bool

	series []report.Series
}

// String describes the point in errors and next to the progress bar.
func (p *point) String() string { return describe(p.workload, p.params) }

func describe(workload string, p report.Params) string {
	return strings.Join(append([]string{workload}, p.Words()...), ", ")
}

// measure runs all points. The progress bar counts milliseconds.
func (r *runner) measure(ctx context.Context, points []point) error {
	defer r.reportStolen()
	if r.timing.Null {
		points = null(points)
	}
	var total time.Duration
	for i := range points {
		total += r.expected(&points[i])
	}
	r.progress.Start(total.Milliseconds(), "measuring")
	for i := range points {
		p := &points[i]
		err := r.compare(ctx, p)
		switch {
		case err == nil:
			r.run.Cells = append(r.run.Cells, p.report(r.suite)...)
		case ctx.Err() != nil:
			return fmt.Errorf("stopped after %d of %d cells: %w", i, len(points), context.Cause(ctx))
		case p.skips != nil && p.skips(err):
			r.skip(report.Skip{Workload: p.workload, Params: p.params, Reason: err.Error()})
		default:
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

// again is the suffix of the name of an engine that is compared with itself.
const again = " (again)"

// null replaces each point by comparisons of each of its engines with itself.
func null(points []point) (out []point) {
	for _, p := range points {
		for _, name := range p.engines {
			q := p
			q.engines = []string{name, name + again}
			q.params = report.Params{"null": name}
			maps.Copy(q.params, p.params)
			if p.open != nil {
				q.open = func(ctx context.Context, name string, pair int) (measure.Player, error) {
					return p.open(ctx, strings.TrimSuffix(name, again), pair)
				}
			}
			q.round = func(ctx context.Context, name string, pair int) (report.Sample, error) {
				return p.round(ctx, strings.TrimSuffix(name, again), pair)
			}
			out = append(out, q)
		}
	}
	return out
}

// compare measures the point, in turns if its workload is steady.
func (r *runner) compare(ctx context.Context, p *point) error {
	r.progress.Note("%s", p)
	began := time.Now()
	for _, name := range p.engines {
		p.series = append(p.series, report.Series{Engine: name})
	}
	if p.prepare != nil {
		if err := p.prepare(ctx); err != nil {
			return err
		}
	}
	if turn := r.turn(p); turn > 0 {
		if err := r.duels(ctx, p, turn, began); err != nil {
			return err
		}
	} else if err := r.interleave(ctx, p); err != nil {
		return err
	}
	r.progress.Add(r.expected(p).Milliseconds())
	return nil
}

// turn returns the length of a turn, or 0 if the point is measured in rounds.
func (r *runner) turn(p *point) time.Duration {
	own := turns[r.suite+"/"+p.workload]
	if p.open == nil || own == 0 || r.timing.Starts == 0 || len(p.engines) < 2 {
		return 0
	}
	return cmp.Or(r.timing.Turn, own)
}

// expected returns how long the point takes.
func (r *runner) expected(p *point) time.Duration {
	if r.turn(p) > 0 {
		return r.timing.Time * time.Duration(len(p.engines)) / 2
	}
	const start = 150 * time.Millisecond // of a process
	return time.Duration(r.timing.Pairs*len(p.engines)) * (r.timing.Duration + warmFor(r.timing.Duration) + start)
}

// leastStarts is how often the engines are started even if that takes too long: fewer starts decide
// nothing.
const leastStarts = 4

// duels lets the engines take turns, and starts all of them anew several times.
func (r *runner) duels(ctx context.Context, p *point, turn time.Duration, began time.Time) error {
	stolen := func() float64 { return 0 }
	if r.stolen != nil {
		stolen = r.stolen()
	}
	each := r.expected(p) / time.Duration(r.timing.Starts)
	late := began.Add(r.expected(p) * 3 / 2)
	for start := range r.timing.Starts {
		if start >= leastStarts && time.Now().After(late) {
			break
		}
		if err := r.duel(ctx, p, start, turn, began.Add(each*time.Duration(start+1))); err != nil {
			return err
		}
	}
	took := time.Since(began).Seconds()
	r.rounds.took += took
	r.rounds.lost += stolen() * took
	return nil
}

// leastPairs is the least number of pairs of a start, even on a machine that is too slow for its
// time. leastRounds is that of rounds.
const leastPairs, leastRounds = 4, 8

// duel starts all engines and lets them take turns until end. An engine that cannot take turns runs
// one round before.
func (r *runner) duel(ctx context.Context, p *point, start int, turn time.Duration, end time.Time) (err error) {
	players, whose, err := p.openAll(ctx, start)
	defer func() {
		for _, one := range players {
			err = errors.Join(err, one.Close())
		}
	}()
	if err != nil {
		return err
	}
	for i, name := range p.engines {
		if !slices.Contains(whose, i) {
			s, err := p.round(ctx, name, start)
			if err != nil {
				return fmt.Errorf("engine %s: %w", name, err)
			}
			p.add(i, start, s)
		}
	}
	for i, one := range players { // The first turn after a start is not typical.
		if _, err := one.Turn(turn); err != nil {
			return fmt.Errorf("engine %s: %w", p.engines[whose[i]], err)
		}
	}
	return measure.Duel(ctx, players, turn, end, leastPairs, func(player, _ int, s measure.Sample) error {
		one := sampleOf(s)
		if p.sample != nil {
			one = p.sample(p.engines[whose[player]], s)
		}
		p.add(whose[player], start, one)
		return nil
	})
}

// openAll starts the engines that take turns, all at the same time. It returns whose player each is.
// The caller closes the players, also after an error.
func (p *point) openAll(ctx context.Context, start int) (players []measure.Player, whose []int, err error) {
	all, errs := make([]measure.Player, len(p.engines)), make([]error, len(p.engines))
	var opening sync.WaitGroup
	for i, name := range p.engines {
		opening.Go(func() { all[i], errs[i] = p.open(ctx, name, start*len(p.engines)+i) })
	}
	opening.Wait()
	for i, one := range all {
		switch {
		case errors.Is(errs[i], errors.ErrUnsupported):
		case errs[i] != nil:
			err = cmp.Or(err, fmt.Errorf("engine %s: %w", p.engines[i], errs[i]))
		default:
			players, whose = append(players, one), append(whose, i)
		}
	}
	return players, whose, err
}

// add adds a sample to the series of an engine.
func (p *point) add(engine, start int, s report.Sample) {
	s.Start = start
	p.series[engine].Samples = append(p.series[engine].Samples, s)
}

// errTime ends the rounds of a point whose time is over.
var errTime = errors.New("the time is over")

// interleave measures the point in rounds, for as long as is expected.
func (r *runner) interleave(ctx context.Context, p *point) error {
	end := time.Now().Add(r.expected(p))
	stolen, began := func() float64 { return 0 }, time.Now()
	if r.stolen != nil {
		stolen = r.stolen()
	}
	_, err := measure.Interleave(ctx, r.timing.Pairs, p.engines,
		func(ctx context.Context, name string, pair int) (s report.Sample, err error) {
			late := pair >= leastRounds && time.Now().After(end)
			if late && !slices.ContainsFunc(p.series, func(s report.Series) bool { return len(s.Samples) != pair }) {
				return s, errTime
			}
			if s, err = p.round(ctx, name, pair); err != nil {
				return s, fmt.Errorf("engine %s: %w", name, err)
			}
			p.add(slices.Index(p.engines, name), pair, s)
			return s, nil
		})
	r.rounds.took += time.Since(began).Seconds()
	r.rounds.lost += stolen() * time.Since(began).Seconds()
	if errors.Is(err, errTime) {
		return nil
	}
	return err
}

// reportStolen reports the time that the host took.
func (r *runner) reportStolen() {
	if r.rounds.took > 0 {
		r.run.Host.Stolen = r.rounds.lost / r.rounds.took
	}
}

// report returns the point's cells.
func (p *point) report(suite string) []report.Cell {
	if p.split != nil {
		return p.split(p.series)
	}
	return []report.Cell{{Suite: suite, Workload: p.workload, Params: p.params, Series: p.series}}
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
