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
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/progress"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// Timing is how long a suite measures. The options of all suites embed it.
type Timing struct {
	// Time is the time of the whole run, which its cells share: a slow machine measures less, not
	// longer. 0 means the sum of the cells' usual times. If Pairs or Duration is set instead, the run
	// takes as long as they need.
	Time time.Duration
	// Pairs is how often the engines of a cell are started, each time in a new process. Duration is
	// how long each engine is then measured: in turns, or else in one round.
	Pairs    int
	Duration time.Duration
	// Turn is the length of a turn; 0 means that of the workload, see turns.
	Turn time.Duration
	// Null compares each engine with itself.
	Null bool

	// turned is Duration with turns. counted reports whether Pairs and Duration limit the run.
	turned  time.Duration
	counted bool
}

// These are the usual numbers of starts of engines that take turns, and of others, and how long an
// engine is measured after each.
const (
	usualStarts, usualTurned = 5, 300 * time.Millisecond
	usualRounds, usualWindow = 14, 200 * time.Millisecond
)

// turns are the lengths of turns by suite and workload, from results/notes/bench.md. A workload without an
// entry is measured in rounds.
var turns = map[string]time.Duration{
	"file/randread": 20 * time.Millisecond, "file/batch": 20 * time.Millisecond, "file/open": 20 * time.Millisecond,
	"file/append":  5 * time.Millisecond,
	"watch/events": 5 * time.Millisecond, "sqlite/tenants": 40 * time.Millisecond,
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
	case t.Time < 0:
		return fmt.Errorf("--time %v: must not be negative", t.Time)
	case t.Turn < 0:
		return fmt.Errorf("--turn %v: must not be negative", t.Turn)
	}
	return nil
}

// Limit sets the time of the run.
func (t *Timing) Limit(d time.Duration) { t.Time = d }

// setDefaults sets the options that are zero.
func (t *Timing) setDefaults() {
	if t.turned > 0 {
		return
	}
	t.counted = t.Time == 0 && (t.Pairs > 0 || t.Duration > 0)
	t.turned = cmp.Or(t.Duration, usualTurned)
	t.Duration = cmp.Or(t.Duration, usualWindow)
}

func warmFor(window time.Duration) time.Duration {
	return min(max(window/3, time.Millisecond), 500*time.Millisecond)
}

// runner has the parts that all suites share: the report and the rounds.
type runner struct {
	suite    string
	timing   Timing
	progress *progress.Bar
	run      *report.Run
	// end is when a run with a time has to end. The zero value is a run without one.
	end time.Time
	// stolen begins to observe the time that the host takes. If it is nil, every round counts.
	stolen func() (share func() float64)
	failed []error // of the cells that are skipped because of them
	rounds struct {
		took, lost float64 // seconds of all cells, and of these the host's
	}
}

// hostStolen is [hostinfo.Stolen], except in tests whose rounds take no time: a tick of the host's
// clock would be a large share of such a round.
var hostStolen = hostinfo.Stolen

// newRunner begins a report about the machine and the storage of path.
func newRunner(suite string, t Timing, p *progress.Bar, path string) runner {
	r := runner{suite: suite, timing: t, progress: p, run: &report.Run{Host: hostinfo.Collect(path)}, stolen: hostStolen}
	r.run.Host.Pairs = cmp.Or(t.Pairs, usualRounds)
	r.run.Host.Starts = cmp.Or(t.Pairs, usualStarts)
	r.run.Host.DurationMs = float64(t.Duration) / float64(time.Millisecond)
	if t.Time > 0 {
		r.end = time.Now().Add(t.Time)
		p.Until(r.end)
	}
	return r
}

// skip adds a part that is not measured, unless the report already has it.
func (r *runner) skip(s report.Skip) {
	s.Suite = r.suite
	if slices.ContainsFunc(r.run.Skipped, func(o report.Skip) bool { return o.String() == s.String() }) {
		return
	}
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
	// turn, if not 0, is the length of a turn instead of that of the workload.
	turn time.Duration

	series []report.Series
	starts int // of engines that take turns
}

// String describes the point in errors and next to the progress bar.
func (p *point) String() string { return describe(p.workload, p.params) }

func describe(workload string, p report.Params) string {
	return strings.Join(append([]string{workload}, p.Words()...), ", ")
}

// errLate ends a point, or skips it, because the time of the run is over.
var errLate = errors.New("no time was left for it: measure for longer with --time")

// measure runs all points, also after one that fails. Each gets its part of the time that is left. The
// progress bar counts milliseconds.
func (r *runner) measure(ctx context.Context, points []point) error {
	defer r.reportStolen()
	if r.timing.Null {
		points = null(points)
	}
	var total time.Duration
	for i := range points {
		total += r.expected(&points[i])
	}
	if r.end.IsZero() && !r.timing.counted {
		r.end = time.Now().Add(total)
		r.progress.Until(r.end)
	}
	r.progress.Start(total.Milliseconds(), "measuring")
	err := r.visit(ctx, points, total)
	if err == nil {
		err = r.revisit(ctx, points)
	}
	if err == nil && len(r.failed) > 0 {
		err = fmt.Errorf("%d of %d cells %w: %w", len(r.failed), len(points), ErrFailed, r.failed[0])
	}
	for i := range points {
		if p := &points[i]; p.measured() {
			r.run.Cells = append(r.run.Cells, p.report(r.suite)...)
		}
	}
	return err
}

// visit measures every point in its part of the time. Points that are decided early leave the rest of
// theirs.
func (r *runner) visit(ctx context.Context, points []point, total time.Duration) error {
	whole, left := r.share(total, total), total
	for i := range points {
		p := &points[i]
		usual := r.expected(p)
		part := min(r.share(usual, left), time.Duration(float64(whole)*float64(usual)/float64(total)))
		left -= usual
		err := r.attempt(ctx, p, part)
		r.progress.Add(usual.Milliseconds())
		if err != nil {
			p.series = nil // what is not complete is not reported
			return stopped(ctx, i, len(points))
		}
	}
	return nil
}

// revisit shares the time that is left among the points that are not decided beyond doubt. All of them
// are measured again, also those whose difference is a claim by now: to go on only without a claim would
// make false ones.
func (r *runner) revisit(ctx context.Context, points []point) error {
	if r.end.IsZero() || r.timing.Pairs > 0 {
		return nil
	}
	var rest []*point
	var total time.Duration
	for i := range points {
		if p := &points[i]; p.measured() && !p.sure(r.suite) {
			rest = append(rest, p)
			total += r.expected(p)
		}
	}
	for _, p := range rest {
		usual := r.expected(p)
		if r.attempt(ctx, p, r.share(usual, total)) != nil {
			return stopped(ctx, len(points), len(points))
		}
		total -= usual
	}
	return nil
}

// attempt measures the point, or skips it with the reason. It returns an error only if ctx has ended. A point
// that fails loses the samples that it had: they may be of an engine that does not do its work.
func (r *runner) attempt(ctx context.Context, p *point, share time.Duration) error {
	err := r.compare(ctx, p, share)
	switch late := errors.Is(err, errLate); {
	case err == nil, late && p.measured():
		return nil
	case ctx.Err() != nil:
		return err
	case !late && !drowned(err):
		r.failed = append(r.failed, fmt.Errorf("%s: %w", p, err))
		err = fmt.Errorf("failed: %w", err)
	}
	p.series = nil
	r.skip(report.Skip{Workload: p.workload, Params: p.params, Reason: err.Error()})
	return nil
}

// drowned reports whether a round of this process or of a worker returned
// [workload.ErrFloor]. That error is caused by a busy machine, not by an engine.
func drowned(err error) bool {
	said, ok := errors.AsType[*measure.WorkerError](err)
	return errors.Is(err, workload.ErrFloor) || ok && said.Said == workload.ErrFloor.Error()
}

// stopped is the error of a run that ended with its context when so many cells were measured.
func stopped(ctx context.Context, done, all int) error {
	return fmt.Errorf("stopped after %d of %d cells: %w", done, all, context.Cause(ctx))
}

// share returns the part of the time left of a point that usually takes usual of total. It returns 0 if
// the run has no end.
func (r *runner) share(usual, total time.Duration) time.Duration {
	if r.end.IsZero() {
		return 0
	}
	return time.Duration(float64(time.Until(r.end)) * float64(usual) / float64(total))
}

// sure reports whether the point's rates are decided beyond doubt.
func (p *point) sure(suite string) bool {
	return !slices.ContainsFunc(p.report(suite), func(c report.Cell) bool { return !c.Sure() })
}

// late reports whether something that takes d would end after the run's time.
func (r *runner) late(d time.Duration) bool {
	return !r.end.IsZero() && time.Until(r.end) < d
}

// measured reports whether every engine has a sample.
func (p *point) measured() bool {
	return len(p.series) > 0 && !slices.ContainsFunc(p.series, func(s report.Series) bool { return len(s.Samples) == 0 })
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

// compare measures the point in the given time, in turns if its workload is steady.
func (r *runner) compare(ctx context.Context, p *point, share time.Duration) error {
	r.progress.Note("%s", p)
	began := time.Now()
	if r.late(0) {
		return errLate
	}
	if p.series == nil {
		for _, name := range p.engines {
			p.series = append(p.series, report.Series{Engine: name})
		}
	}
	if p.prepare != nil {
		if err := p.prepare(ctx); err != nil {
			return err
		}
	}
	defer r.observe()()
	if turn := r.turn(p); turn > 0 {
		return r.duels(ctx, p, turn, began, share)
	}
	return r.interleave(ctx, p, began.Add(share))
}

// observe begins to observe the time that the host takes, and returns the function that ends it.
func (r *runner) observe() (end func()) {
	if r.stolen == nil {
		return func() {}
	}
	began, share := time.Now(), r.stolen()
	return func() {
		took := time.Since(began).Seconds()
		r.rounds.took += took
		r.rounds.lost += share() * took
	}
}

// turn returns the length of a turn, or 0 if the point is measured in rounds.
func (r *runner) turn(p *point) time.Duration {
	own := cmp.Or(p.turn, turns[r.suite+"/"+p.workload])
	if p.open == nil || own == 0 || len(p.engines) < 2 {
		return 0
	}
	own = cmp.Or(r.timing.Turn, own)
	if r.timing.counted {
		return min(own, r.timing.turned)
	}
	return own
}

// expected returns how long the point usually takes.
func (r *runner) expected(p *point) time.Duration {
	const start = 150 * time.Millisecond // of a process
	n := time.Duration(len(p.engines))
	if turn := r.turn(p); turn > 0 {
		turned := r.timing.turned
		if !r.timing.counted {
			turned = max(turned, leastPairs*turn)
		}
		return time.Duration(cmp.Or(r.timing.Pairs, usualStarts)) * (start + n*turned)
	}
	return time.Duration(cmp.Or(r.timing.Pairs, usualRounds)) * n * (r.timing.Duration + warmFor(r.timing.Duration) + start)
}

// Engines are started less often if opening them takes a greater part of a start than half, or if a
// start would be shorter than leastStart. leastStarts is the number of starts below which nothing can be
// decided, mostStarts that above which more decide little.
const (
	leastStart              = 600 * time.Millisecond
	leastStarts, mostStarts = 4, 12
)

// duels lets the engines take turns, and starts all of them anew several times.
func (r *runner) duels(ctx context.Context, p *point, turn time.Duration, began time.Time, share time.Duration) error {
	if r.timing.counted {
		pairs := int((r.timing.turned + turn - 1) / turn)
		for start := range cmp.Or(r.timing.Pairs, usualStarts) {
			if _, err := r.duel(ctx, p, start, turn, func(pair int) bool { return pair < pairs }); err != nil {
				return err
			}
		}
		return nil
	}
	each := leastStart
	for n := 0; ; n++ {
		left := time.Until(began.Add(share))
		starts := min(mostStarts, n+max(leastStarts-p.starts, int(left/each)))
		if r.timing.Pairs > 0 {
			starts = r.timing.Pairs
		} else if p.starts >= leastStarts && p.sure(r.suite) {
			return nil
		}
		if n >= starts || r.late(0) {
			return nil
		}
		end := time.Now().Add(left / time.Duration(starts-n))
		opened, err := r.duel(ctx, p, p.starts, turn, func(pair int) bool {
			return pair < leastPairs && !r.late(0) || time.Now().Before(end)
		})
		if err != nil {
			return err
		}
		p.starts++
		each = max(leastStart, each*3/4, 2*opened)
	}
}

// leastPairs is the least number of pairs of a start on a machine that is too slow for more.
const leastPairs = 4

// duel starts all engines and lets them take turns for as long as more holds. An engine that cannot take
// turns runs one round before. It returns how long all that took before the first turn.
func (r *runner) duel(ctx context.Context, p *point, start int, turn time.Duration, more func(pair int) bool) (opened time.Duration, err error) {
	began := time.Now()
	players, whose, err := p.openAll(ctx, start)
	defer func() {
		errs := append(make([]error, len(players)), err)
		var closing sync.WaitGroup
		for i, one := range players {
			closing.Go(func() { errs[i] = one.Close() })
		}
		closing.Wait()
		err = errors.Join(errs...)
	}()
	if err != nil {
		return 0, err
	}
	for i, name := range p.engines {
		if !slices.Contains(whose, i) {
			s, err := p.round(ctx, name, start)
			if err != nil {
				return 0, fmt.Errorf("engine %s: %w", name, err)
			}
			p.add(i, start, s)
		}
	}
	for _, one := range players { // The first turn after a start is not typical.
		if _, err := one.Turn(turn); err != nil {
			return 0, err
		}
	}
	opened = time.Since(began)
	return opened, measure.Duel(ctx, players, turn, more, func(player int, s measure.Sample) error {
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
			players, whose = append(players, named{one, p.engines[i]}), append(whose, i)
		}
	}
	return players, whose, err
}

// named is a player whose errors name the engine.
type named struct {
	measure.Player
	engine string
}

func (n named) Turn(d time.Duration) (measure.Sample, error) {
	s, err := n.Player.Turn(d)
	return s, n.wrap(err)
}

func (n named) Close() error { return n.wrap(n.Player.Close()) }

func (n named) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("engine %s: %w", n.engine, err)
}

// add adds a sample to the series of an engine.
func (p *point) add(engine, start int, s report.Sample) {
	s.Start = start
	p.series[engine].Samples = append(p.series[engine].Samples, s)
}

// interleave measures the point in rounds: as many as were asked for, or else as end allows.
func (r *runner) interleave(ctx context.Context, p *point, end time.Time) error {
	began, pairs, had := time.Now(), cmp.Or(r.timing.Pairs, usualRounds), len(p.series[0].Samples)
	if !r.timing.counted {
		pairs = math.MaxInt
	}
	_, err := measure.Interleave(ctx, pairs, p.engines,
		func(ctx context.Context, name string, pair int) (s report.Sample, err error) {
			each := time.Since(began) / time.Duration(max(pair, 1))
			pair += had
			first := !slices.ContainsFunc(p.series, func(s report.Series) bool { return len(s.Samples) != pair })
			if first && !r.timing.counted && (r.late(each) || pair >= leastStarts && (time.Now().After(end) || p.sure(r.suite))) {
				return s, errLate
			}
			if s, err = p.round(ctx, name, pair); err != nil {
				return s, fmt.Errorf("engine %s: %w", name, err)
			}
			p.add(slices.Index(p.engines, name), pair, s)
			return s, nil
		})
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

// ErrNothing is returned when every part of a run was skipped. The report has the reasons.
var ErrNothing = errors.New("nothing could be measured")

// ErrFailed is matched by the error of a run in which cells failed. The report has the others, and the
// reasons.
var ErrFailed = errors.New("failed")

// DefaultDir returns the default directory for test files: TMPDIR if that is set, or else /var/tmp,
// which unlike /tmp is usually not in memory.
func DefaultDir() string {
	if runtime.GOOS == "windows" || os.Getenv("TMPDIR") != "" {
		return os.TempDir()
	}
	const dir = "/var/tmp"
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir
	}
	return os.TempDir()
}
