// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const sqliteSuite = "sqlite"

// SQLite runs the suite "sqlite". It always returns a report, which is complete only if the error
// is nil. It removes the databases that it created in any case.
func SQLite(ctx context.Context, opts SQLiteOptions, env Env) (run *report.Run, err error) {
	opts = opts.withDefaults()
	s := &sqliteRun{runner: newRunner(sqliteSuite, opts.Timing, env.Progress, opts.Dir), opts: opts, env: env}
	s.run.Host.Seed, s.run.Host.Verified = opts.Seed, true
	if !slices.Contains(opts.Workloads, TenantsWork) {
		s.run.Host.DurationMs = 0 // A round ends when its work is done.
	}
	points := s.usable(s.opts.points())
	if len(points) == 0 {
		return s.run, ErrNothing
	}
	file, dir, err := s.scratch(ctx)
	if err != nil {
		return s.run, fmt.Errorf("create databases: %w: choose another directory with --dir", err)
	}
	defer func() { err = errors.Join(err, file.Remove()) }()
	s.dir = dir
	if points, err = s.prepare(ctx, points); err != nil {
		return s.run, err
	}
	if len(points) == 0 {
		return s.run, ErrNothing
	}
	return s.run, s.measure(ctx, s.rows(points))
}

// sqliteRun is the state of one run of the suite.
type sqliteRun struct {
	runner
	opts SQLiteOptions
	env  Env
	dir  string // holds the databases
}

// scratch creates the directory of the run. If this run is killed, the next one removes it.
func (s *sqliteRun) scratch(ctx context.Context) (*datafile.File, string, error) {
	if stale, err := datafile.Sweep(s.opts.Dir); err == nil {
		for _, path := range stale {
			s.note("removed %s, which a killed run had left", path)
		}
	}
	file, err := datafile.Create(ctx, s.opts.Dir, datafile.UnitSize, s.opts.Seed, nil)
	if err != nil {
		return nil, "", err
	}
	dir, err := file.Scratch()
	if err == nil {
		dir, err = filepath.Abs(dir) // The URI of a database needs an absolute path.
	}
	if err != nil {
		return nil, "", errors.Join(err, file.Remove())
	}
	return file, dir, nil
}

// usable leaves out the engines that this program does not have, and notes them once for each
// workload.
func (s *sqliteRun) usable(points []sqlitePoint) []sqlitePoint {
	named := map[[2]string]bool{}
	for i := range points {
		p := &points[i]
		p.series = slices.DeleteFunc(p.series, func(row sqliteSeries) bool {
			err := s.env.probeSQLite(row.engine)
			if key := [2]string{p.work, row.engine}; err != nil && !named[key] {
				named[key] = true
				s.skip(report.Skip{Workload: p.work, Engine: row.engine, Reason: err.Error()})
			}
			if err == nil {
				s.peer(s.env.sqliteVersion(row.engine))
			}
			return err != nil
		})
	}
	return slices.DeleteFunc(points, func(p sqlitePoint) bool { return len(p.series) == 0 })
}

// prepare determines the backend of the ring, and creates the databases that are read cold.
func (s *sqliteRun) prepare(ctx context.Context, points []sqlitePoint) ([]sqlitePoint, error) {
	about, err := s.env.Workers.Round(ctx, workload.Job{Engine: engine.NameRingside})
	if err != nil {
		return nil, fmt.Errorf("get the backend of ringside: %w", err)
	}
	s.run.Host.Backend, s.run.Host.Reason = about.Backend, about.Reason
	isCold := func(p sqlitePoint) bool { return p.work == ColdWork }
	if !slices.ContainsFunc(points, isCold) {
		return points, nil
	}
	s.env.Progress.Start(1, "making databases")
	what := &sqlitebench.Cold{Dir: s.dir, What: sqlitebench.Make, Rows: s.opts.rows(), Seed: s.opts.Seed}
	if _, err := s.env.Workers.Round(ctx, workload.Job{Suite: sqliteSuite, Workload: ColdWork, Engine: sqlitebench.Default, Work: what}); err != nil {
		return nil, fmt.Errorf("make databases: %w", err)
	}
	path := filepath.Join(s.dir, sqlitebench.Fragmented)
	err = s.env.probeEvict(path)
	if errors.Is(err, datafile.ErrCached) {
		s.skip(report.Skip{Workload: ColdWork, Reason: fmt.Sprintf("%v; choose a directory on a disk with --dir", err)})
		return slices.DeleteFunc(points, isCold), nil
	}
	if err == nil {
		s.run.Host.FileBytes, err = datafile.SizeOf(path)
	}
	return points, err
}

// rows returns the points with the functions that run them.
func (s *sqliteRun) rows(points []sqlitePoint) []point {
	var out []point
	for _, p := range points {
		rows := map[string]sqliteSeries{}
		q := &point{workload: p.work, params: p.params}
		if t, ok := p.round.(*sqlitebench.Tenants); ok && t.Databases > 2 && !sqlitebench.UsesWAL(p.series[0].journal) {
			q.turn = 100 * time.Millisecond // Group sync needs some 30 ms to find which syncs are faster.
		}
		for _, row := range p.series {
			q.engines = append(q.engines, row.name)
			rows[row.name] = row
		}
		q.round = func(ctx context.Context, name string, pair int) (report.Sample, error) {
			sample, err := s.env.Workers.Round(ctx, s.job(p, rows[name], pair))
			if err != nil {
				return report.Sample{}, err
			}
			return q.sample(name, sample), nil
		}
		q.open = s.env.Workers.opener(func(name string, pair int) (workload.Job, error) { return s.job(p, rows[name], pair), nil })
		q.sample = func(_ string, sample measure.Sample) report.Sample {
			out := sampleOf(sample)
			if p.work != SpeedWork {
				addDeviceShare(out, sample)
			}
			return out
		}
		if p.work == SpeedWork {
			q.split = speedCells
		}
		out = append(out, *q)
	}
	return out
}

// crowdFactor makes windows longer for many connections to one database. A connection that finds it
// locked sleeps for a long time, and a window ends when the last one has woken.
const crowdFactor = 5

// job returns one round of a row. All rounds of a pair do the same work.
func (s *sqliteRun) job(p sqlitePoint, row sqliteSeries, pair int) workload.Job {
	var work workload.Work
	window := s.opts.Duration
	switch round := p.round.(type) {
	case *sqlitebench.Speed:
		w := *round
		w.Dir, w.Journal, w.Seed = s.dir, row.journal, w.Seed+uint64(pair)
		work = &w
	case *sqlitebench.Tenants:
		w := *round
		w.Dir, w.Journal = s.dir, row.journal
		if work = &w; w.Connections > 1 {
			window *= crowdFactor
		}
	case *sqlitebench.Cold:
		w := *round
		w.Dir, w.Seed = s.dir, w.Seed+uint64(pair)
		work = &w
	}
	return workload.Job{
		Suite: sqliteSuite, Workload: p.work, Engine: row.engine, Work: work,
		Goroutines: 1, Warm: warmFor(window), Measure: window,
	}
}

// speedCells makes a cell of each test.
func speedCells(all []report.Series) (out []report.Cell) {
	for test := 1; test <= sqlitebench.Tests; test++ {
		cell := report.Cell{Suite: sqliteSuite, Workload: SpeedWork, Params: report.Params{"test": test}}
		for _, whole := range all {
			series := report.Series{Engine: whole.Engine}
			for _, sample := range whole.Samples {
				one := measure.Sample{Ops: 1, Elapsed: time.Duration(sample.Metrics[sqlitebench.TestNs(test)])}
				if cpu, ok := sample.Metrics[sqlitebench.TestCPU(test)]; ok {
					d := time.Duration(cpu)
					one.CPU = &d
				}
				series.Samples = append(series.Samples, sampleOf(one))
			}
			cell.Series = append(cell.Series, series)
		}
		out = append(out, cell)
	}
	return out
}
