// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// sqliteWorld is a Env in which everything but one engine works, rounds take no time, and jobs
// are recorded.
type sqliteWorld struct {
	Env
	jobs []workload.Job
}

func newSQLiteWorld() *sqliteWorld {
	w := &sqliteWorld{}
	w.Env = Env{
		Workers: Workers{Round: w.round},
		machine: machine{
			probeSQLite: func(engine string) error {
				if engine == sqlitebench.Mattn {
					return errors.New("no compiler")
				}
				return nil
			},
			sqliteVersion: func(engine string) string { return "library of " + engine[:4] },
			probeEvict:    func(string) error { return nil },
		},
	}
	return w
}

func (w *sqliteWorld) round(ctx context.Context, j workload.Job) (measure.Sample, error) {
	if ctx.Err() != nil {
		return measure.Sample{}, ctx.Err()
	}
	if j.Work == nil {
		return measure.Sample{Backend: "io_uring", Reason: "a test"}, nil
	}
	w.jobs = append(w.jobs, j)
	if c := of[sqlitebench.Cold](j); c != nil && c.What == sqlitebench.Make {
		return measure.Sample{}, os.WriteFile(filepath.Join(c.Dir, sqlitebench.Fragmented), make([]byte, 4096), 0o600)
	}
	s := measure.Sample{Ops: 10, Elapsed: time.Millisecond, Bytes: 100, DeviceReads: 50, Further: map[string]float64{}}
	if of[sqlitebench.Speed](j) != nil {
		for test := range sqlitebench.Tests {
			s.Further[sqlitebench.TestNs(test+1)] = float64(1000 * (test + 1))
			s.Further[sqlitebench.TestCPU(test+1)] = 500
		}
	}
	return s, nil
}

func TestSQLiteSpeed(t *testing.T) {
	w, dir := newSQLiteWorld(), t.TempDir()
	run, err := SQLite(t.Context(), SQLiteOptions{Dir: dir, Workloads: []string{SpeedWork}, Seed: 5, Timing: Timing{Pairs: 2}}, w.Env)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{
		"memory", "default-rollback", "ringside-plain-rollback", "ringside-rollback", "modernc-rollback",
		"default-wal", "ringside-wal", "ringside-log-wal", "modernc-wal",
	}
	if len(run.Cells) != sqlitebench.Tests || len(w.jobs) != 2*len(names) {
		t.Fatalf("%d cells, %d rounds", len(run.Cells), len(w.jobs))
	}
	for i, j := range w.jobs {
		if s := of[sqlitebench.Speed](j); s.Seed != 5+uint64(i/len(names)) || s.Scale != 100 || s.Dir == dir || filepath.Dir(s.Dir) != dir {
			t.Errorf("round %d: %+v in %s", i, s, s.Dir)
		}
	}
	for i, c := range run.Cells {
		var got []string
		for _, s := range c.Series {
			got = append(got, s.Engine)
			if m := s.Samples[1].Metrics; m[measure.NsPerOp] != float64(1000*(i+1)) || m[measure.CPUUsPerOp] != 0.5 {
				t.Errorf("test %d: %v", i+1, m)
			}
		}
		if !slices.Equal(got, names) || c.Params["test"] != i+1 {
			t.Errorf("cell %d: %v of %v", i, c.Params, got)
		}
	}
	if h := run.Host; h.Backend != "io_uring" || h.Seed != 5 || h.Pairs != 2 || h.DurationMs != 0 || len(h.Peers) != 4 {
		t.Errorf("host %+v", h)
	}
	if len(run.Skipped) != 1 || run.Skipped[0].Engine != sqlitebench.Mattn || run.Skipped[0].Workload != SpeedWork {
		t.Errorf("skipped %v", run.Skipped)
	}
	wantEmpty(t, dir)
}

func TestSQLitePoints(t *testing.T) {
	for _, tc := range []struct {
		opts  SQLiteOptions
		works map[string]int
	}{
		{SQLiteOptions{}, map[string]int{TenantsWork: 5, ColdWork: 2}},
		{SQLiteOptions{Workloads: []string{SpeedWork}}, map[string]int{SpeedWork: 1}},
		{SQLiteOptions{Workloads: []string{TenantsWork}}, map[string]int{TenantsWork: 5*(4+2) + 2 + 1}},
		{SQLiteOptions{Workloads: []string{TenantsWork}, Commits: []string{"order"}}, map[string]int{TenantsWork: 3 * (4 + 2)}},
		{SQLiteOptions{Workloads: []string{TenantsWork}, Databases: []int{7}}, map[string]int{TenantsWork: 6}},
		{SQLiteOptions{Workloads: []string{TenantsWork}, Connections: []int{7}}, map[string]int{TenantsWork: 5}},
		{SQLiteOptions{Workloads: []string{TenantsWork}, Journals: []string{"wal"}}, map[string]int{TenantsWork: 18}},
		{SQLiteOptions{Workloads: []string{TenantsWork}, Journals: []string{"wal-normal"}}, map[string]int{TenantsWork: 6}},
		{SQLiteOptions{Workloads: []string{ColdWork}}, map[string]int{ColdWork: 7}},
		{SQLiteOptions{Workloads: []string{ColdWork}, Cold: []string{"index"}}, map[string]int{ColdWork: 1}},
		{SQLiteOptions{Workloads: sqliteWorks, Engines: []string{"memory"}}, map[string]int{SpeedWork: 1}},
	} {
		got := map[string]int{}
		for _, p := range tc.opts.withDefaults().points() {
			got[p.work]++
		}
		if fmt.Sprint(got) != fmt.Sprint(tc.works) {
			t.Errorf("%+v: %v, want %v", tc.opts, got, tc.works)
		}
	}
}

func TestSQLiteColdMakesItsDatabases(t *testing.T) {
	w := newSQLiteWorld()
	opts := SQLiteOptions{Dir: t.TempDir(), Workloads: []string{ColdWork}, Cold: []string{"scan"}, Scale: 2, Timing: Timing{Pairs: 2}, Seed: 9}
	run, err := SQLite(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 1 || len(w.jobs) != 1+2*3 {
		t.Fatalf("%d cells, %d rounds, %v", len(run.Cells), len(w.jobs), err)
	}
	if c := of[sqlitebench.Cold](w.jobs[0]); c.What != sqlitebench.Make || c.Rows != 2000 || c.Seed != 9 {
		t.Errorf("the first job: %+v", c)
	}
	if c := of[sqlitebench.Cold](w.jobs[4]); c.What != "scan" || c.Rows != 2000 || c.Seed != 10 || c.Dir != of[sqlitebench.Cold](w.jobs[0]).Dir {
		t.Errorf("the second pair: %+v", c)
	}
	if m := run.Cells[0].Series[0].Samples[0].Metrics; m["device_share"] != 0.5 || run.Host.FileBytes != 4096 {
		t.Errorf("%v, %d bytes", m, run.Host.FileBytes)
	}
	wantEmpty(t, opts.Dir)
	w.probeEvict = func(string) error { return datafile.ErrCached }
	run, err = SQLite(t.Context(), opts, w.Env)
	if !errors.Is(err, ErrNothing) || run.Skipped[len(run.Skipped)-1].Workload != ColdWork {
		t.Errorf("in memory: %v, %v", run.Skipped, err)
	}
	wantEmpty(t, opts.Dir)
}

func TestSQLiteMeasuresCrowdsForLonger(t *testing.T) {
	w := newSQLiteWorld()
	opts := SQLiteOptions{
		Dir: t.TempDir(), Workloads: []string{TenantsWork}, Databases: []int{2}, Connections: []int{3}, Journals: []string{"wal"}, Commits: []string{"row"},
		Engines: []string{"ringside-log"}, Timing: Timing{Pairs: 1, Duration: time.Second},
	}
	if run, err := SQLite(t.Context(), opts, w.Env); err != nil || len(w.jobs) != 2 || run.Host.DurationMs != 1000 {
		t.Fatalf("%d rounds, %v", len(w.jobs), err)
	}
	many, crowd := w.jobs[0], w.jobs[1]
	if s := of[sqlitebench.Tenants](many); *s != (sqlitebench.Tenants{Dir: s.Dir, Journal: "wal", Databases: 2, Connections: 1}) || many.Measure != time.Second {
		t.Errorf("%+v for %v", s, many.Measure)
	}
	if s := of[sqlitebench.Tenants](crowd); *s != (sqlitebench.Tenants{Dir: s.Dir, Journal: "wal", Databases: 1, Connections: 3}) || crowd.Measure != 5*time.Second {
		t.Errorf("%+v for %v", s, crowd.Measure)
	}
}

func TestSQLiteEndsWithItsContext(t *testing.T) {
	w, dir := newSQLiteWorld(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	inner := w.Workers.Round
	w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
		if len(w.jobs) == 20 {
			cancel()
		}
		return inner(ctx, j)
	}
	run, err := SQLite(ctx, SQLiteOptions{Dir: dir, Workloads: sqliteWorks, Timing: Timing{Pairs: 1}}, w.Env)
	if !errors.Is(err, context.Canceled) || len(run.Cells) < sqlitebench.Tests {
		t.Errorf("%d cells, %v", len(run.Cells), err)
	}
	wantEmpty(t, dir)
}

func TestSQLiteOptionsAreChecked(t *testing.T) {
	if err := (SQLiteOptions{}).Validate(); err != nil {
		t.Error(err)
	}
	for i, o := range []SQLiteOptions{
		{Workloads: []string{"sun"}}, {Engines: []string{"os"}}, {Journals: []string{"paper"}}, {Cold: []string{"make"}}, {Databases: []int{0}},
		{Connections: []int{5000}}, {Scale: -1}, {Timing: Timing{Pairs: -1}}, {Timing: Timing{Duration: -1}},
	} {
		if o.Validate() == nil {
			t.Errorf("options %d: %+v", i, o)
		}
	}
}

// TestTurnsOfTenants checks that turns are long only where group sync has to find what is faster.
func TestTurnsOfTenants(t *testing.T) {
	o := SQLiteOptions{Workloads: []string{TenantsWork}}.withDefaults()
	for _, p := range (&sqliteRun{opts: o}).rows(o.points()) {
		databases, _ := p.params.Number("databases")
		long := databases > 2 && !sqlitebench.UsesWAL(p.params["journal"].(string))
		if long != (p.turn == 100*time.Millisecond) || !long && p.turn != 0 {
			t.Errorf("%s: turns of %v", &p, p.turn)
		}
	}
}
