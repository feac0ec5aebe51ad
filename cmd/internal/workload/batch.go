// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Batch reads Count blocks at random block-aligned offsets with one call, from one goroutine.
type Batch struct {
	RandRead
	// Count is the number of blocks per call.
	Count int `json:"count"`
}

// Open opens the file with the engine. It returns the operation, which is one call, and a function
// that closes the file.
func (w Batch) Open(e engine.Engine) (op measure.Op, closeFile func() error, err error) {
	if err := w.check(); err != nil {
		return nil, nil, err
	}
	if w.Count < 1 {
		return nil, nil, fmt.Errorf("batch of %d blocks", w.Count)
	}
	batcher, ok := e.(engine.Batcher)
	if !ok {
		return nil, nil, fmt.Errorf("engine %s reads no batches", e.Name())
	}
	b, err := batcher.OpenBatch(w.Path, w.Direct, w.Count, w.Block)
	if err != nil {
		return nil, nil, err
	}
	for i := range w.Count {
		touch(b.Buffer(i))
	}
	r := &batchReader{batch: b, offsets: make([]int64, w.Count), reader: w.reader(0)}
	return r.readAll, b.Close, nil
}

// batchReader is the state of the goroutine of a Batch.
type batchReader struct {
	reader
	batch   engine.Batch
	offsets []int64
}

// readAll reads one batch and verifies the blocks.
func (r *batchReader) readAll() (int, error) {
	for i := range r.offsets {
		r.offsets[i] = r.next()
	}
	if err := r.batch.Read(r.offsets); err != nil {
		return 0, err
	}
	for i, off := range r.offsets {
		if err := r.verify(r.batch.Buffer(i), off); err != nil {
			return 0, err
		}
	}
	return len(r.offsets) * r.size, nil
}

// Run implements [Work].
func (w *Batch) Run(ctx context.Context, name string, plan measure.Plan) (measure.Sample, error) {
	return onFiles(ctx, w, name, plan)
}

// runWith measures calls, and reports blocks as operations.
func (w *Batch) runWith(ctx context.Context, e engine.Engine, plan measure.Plan) (s measure.Sample, err error) {
	op, closeFile, err := w.Open(e)
	if err != nil {
		return measure.Sample{}, err
	}
	defer func() { err = errors.Join(err, closeFile()) }()
	plan.Goroutines, plan.Adjust = 1, unitsOf(w.Count)
	return measure.Run(ctx, plan, func(int) (measure.Op, error) { return op, nil })
}
