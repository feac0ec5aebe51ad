// SPDX-License-Identifier: MIT

package sqlitebench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Speed runs the 16 tests, one after another, in one new database.
type Speed struct {
	// Dir is an existing directory. The round creates a temporary one in it.
	Dir string `json:"dir"`
	// Journal is one of the journal modes of this package.
	Journal string `json:"journal"`
	// Scale is the percentage of the statements of the original tests that are run.
	Scale int `json:"scale"`
	// Seed selects the rows.
	Seed uint64 `json:"seed"`
}

// TestNs and TestCPU return the names of a sample's metrics for a test: its elapsed time and its
// CPU time in nanoseconds. Tests are numbered from 1.
func TestNs(test int) string  { return fmt.Sprintf("test_%d_ns", test) }
func TestCPU(test int) string { return fmt.Sprintf("test_%d_cpu_ns", test) }

// Run runs all tests, for as long as they take.
func (s *Speed) Run(ctx context.Context, engine string, _ measure.Plan) (measure.Sample, error) {
	return inRound(s.Dir, func(dir string) (measure.Sample, error) { return s.run(ctx, engine, dir) })
}

// run runs all tests in a directory of their own. It checks the database before the last test.
func (s Speed) run(ctx context.Context, engine, dir string) (sample measure.Sample, err error) {
	c, err := Open(engine, filepath.Join(dir, "speed.db"), s.Journal)
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	sample.Further = map[string]float64{}
	for test := range Tests {
		if test == Tests-1 {
			if err := s.check(c); err != nil {
				return sample, err
			}
		}
		if err := s.test(ctx, c, test, &sample); err != nil {
			return sample, fmt.Errorf("test %d: %w", test+1, err)
		}
	}
	return sample, nil
}

// test measures one test.
func (s Speed) test(ctx context.Context, c Conn, test int, sample *measure.Sample) error {
	sql := statements(test, s.Seed, s.Scale)
	runtime.GC() // Garbage of the preparation must not be collected during the test.
	cpu, known := measure.CPUTime()
	begin := time.Now()
	for i, stmt := range sql {
		if i%256 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.Exec(stmt); err != nil {
			return fmt.Errorf("%.80s: %w", stmt, err)
		}
	}
	elapsed := time.Since(begin)
	if after, ok := measure.CPUTime(); known && ok {
		sample.Further[TestCPU(test+1)] = float64(after - cpu)
	}
	sample.Further[TestNs(test+1)] = float64(elapsed)
	sample.Ops++
	sample.Elapsed += elapsed
	return nil
}

// check checks the tables after the tests.
func (s Speed) check(c Conn) error {
	for _, q := range []struct {
		sql  string
		want int64
	}{
		{"SELECT count(*) FROM t1", int64(scaled(3000, s.Scale))},
		{"SELECT count(*) FROM t3", int64(scaled(25_000, s.Scale))},
		{"SELECT quick_check='ok' FROM pragma_quick_check", 1},
	} {
		if err := expect(c, q.sql, q.want); err != nil {
			return err
		}
	}
	return nil
}
