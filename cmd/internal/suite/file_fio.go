// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// isFio reports whether the engine is the fio program.
func isFio(engine string) bool {
	return engine == fio.Name || engine == fio.NameFixed || engine == fio.NameBatched
}

// findFio finds the program and checks that it can read the storage's file. Without fio the run
// goes on.
func (f *fileRun) findFio(ctx context.Context, st *store) error {
	program, err := f.env.findFio()
	if err == nil {
		err = f.tryFio(ctx, program, st)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("stopped before anything was measured: %w", ctx.Err())
	case err != nil:
		f.skip(report.Skip{Engine: fio.Name, Reason: err.Error()})
	}
	return nil
}

// tryFio reads for a moment. The features of fio depend on its build and on the privileges of this
// process.
func (f *fileRun) tryFio(ctx context.Context, program string, st *store) error {
	for _, name := range append([]string{fio.Name}, f.opts.FioAlso...) {
		s, err := f.env.fio(ctx, program, fio.RandRead{
			Engine: name, Path: st.path, Span: st.size, Block: minBlock, Depth: 1, Measure: time.Millisecond, Seed: f.opts.Seed,
		})
		if err != nil {
			return err
		}
		if s.Backend != "" {
			f.run.Host.Peers = []string{s.Backend}
		}
	}
	f.fio = program
	return nil
}

// fioRound runs fio on the cell, with as many reads in flight as the other engines have.
func (f *fileRun) fioRound(ctx context.Context, c cell, name string, pair int) (measure.Sample, error) {
	depth := c.goroutines
	if c.workload == nameBatch {
		depth = c.count()
	}
	return f.env.fio(ctx, f.fio, fio.RandRead{
		Engine: name, Path: f.stores[c.storage].path, Span: f.span(c), Block: c.block, Depth: depth,
		Warm: f.opts.warm(), Measure: f.opts.Duration, Seed: f.opts.Seed + uint64(pair),
	})
}
