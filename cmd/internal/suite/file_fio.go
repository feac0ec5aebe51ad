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

// findFio finds the program and lets it show that it can read the storage's file. Without it the
// run goes on, unless it was asked for.
func (f *fileRun) findFio(ctx context.Context, st *store) error {
	program, err := f.env.FindFio()
	if err == nil {
		err = f.tryFio(ctx, program, st)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("stopped before anything was measured: %w", ctx.Err())
	case err != nil && f.opts.Fio == Always:
		return fmt.Errorf("--fio: %w", err)
	case err != nil:
		f.skip(report.Skip{Engine: fio.Name, Reason: err.Error()})
	}
	return nil
}

// tryFio reads for a moment. What fio can do depends on how it was built and on what this process
// may do.
func (f *fileRun) tryFio(ctx context.Context, program string, st *store) error {
	for _, name := range append([]string{fio.Name}, f.opts.FioAlso...) {
		s, err := f.env.Fio(ctx, program, fio.RandRead{
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

// fioRound lets fio read as the cell does, with depth reads in flight.
func (f *fileRun) fioRound(ctx context.Context, c cell, name string, depth, pair int) (measure.Sample, error) {
	return f.env.Fio(ctx, f.fio, fio.RandRead{
		Engine: name, Path: f.stores[c.storage].path, Span: f.span(c), Block: c.block, Depth: depth,
		Warm: f.opts.warm(), Measure: f.opts.Duration, Seed: f.opts.Seed + uint64(pair),
	})
}
