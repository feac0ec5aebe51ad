// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Open opens the file, reads one random block, and closes the file. With a Block of 0 it reads
// nothing.
type Open struct {
	RandRead
}

// newOp returns one goroutine's operation, for [measure.Run].
func (w Open) newOp(e engine.Engine, goroutine int) measure.Op {
	o := &opener{engine: e, path: w.Path, direct: w.Direct}
	if w.Block > 0 {
		o.reader = w.reader(goroutine)
		o.buf = alignedBuffer(w.Block)
	}
	return o.openOne
}

// opener is the state of one goroutine of an Open.
type opener struct {
	reader
	engine engine.Engine
	path   string
	direct bool
}

// openOne opens the file, reads a block into the buffer if there is one, and closes the file.
func (o *opener) openOne() (n int, err error) {
	if o.file, err = o.engine.OpenRead(o.path, o.direct); err != nil {
		return 0, err
	}
	if len(o.buf) > 0 {
		n, err = o.readOne()
	}
	return n, errors.Join(err, o.file.Close())
}

// Run implements [Work].
func (w *Open) Run(ctx context.Context, name string, plan measure.Plan) (measure.Sample, error) {
	return onFiles(ctx, w, name, plan)
}

// runWith measures opening and closing. The process opens no other file with the engine.
func (w *Open) runWith(ctx context.Context, e engine.Engine, plan measure.Plan) (measure.Sample, error) {
	if w.Block != 0 {
		if err := w.check(); err != nil {
			return measure.Sample{}, err
		}
	}
	return measure.Run(ctx, plan, func(goroutine int) (measure.Op, error) { return w.newOp(e, goroutine), nil })
}
