// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// coldRead measures reads of blocks that are not in the page cache. The window ends early when
// each block of the span has been read.
func (j Job) coldRead(ctx context.Context, e engine.Engine) (s measure.Sample, err error) {
	w := *j.RandRead
	if err := w.check(); err != nil {
		return measure.Sample{}, err
	}
	if w.Direct || w.Span/int64(w.Block) > math.MaxUint32 {
		return measure.Sample{}, fmt.Errorf("cold reads need the page cache and at most %d blocks", uint32(math.MaxUint32))
	}
	f, err := e.OpenRead(w.Path, false)
	if err != nil {
		return measure.Sample{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := errors.Join(adviseRandom(f), datafile.Evict(w.Path)); err != nil {
		return measure.Sample{}, err
	}
	blocks := newColdBlocks(w.Seed, w.Block, w.Span)
	plan := measure.Plan{
		Goroutines: j.Goroutines, Warm: j.Warm, Measure: j.Measure,
		Between: func() error {
			blocks.next.Store(0)
			return datafile.Evict(w.Path)
		},
	}
	return measure.Run(ctx, plan, func(goroutine int) (measure.Op, error) {
		r := &coldReader{reader: w.reader(goroutine), blocks: blocks}
		r.file, r.buf = f, alignedBuffer(w.Block)
		return r.readNext, nil
	})
}

// coldReader is one goroutine's share of a cold read.
type coldReader struct {
	reader
	blocks *coldBlocks
}

// readNext reads the next unread block.
func (r *coldReader) readNext() (int, error) {
	off, ok := r.blocks.take()
	if !ok {
		return 0, measure.ErrDone
	}
	return r.readAt(off)
}

// coldBlocks hands out the blocks of a span in random order, each once.
type coldBlocks struct {
	order []uint32
	size  int64
	next  atomic.Int64
}

// newColdBlocks returns the order that the seed selects.
func newColdBlocks(seed uint64, block int, span int64) *coldBlocks {
	c := &coldBlocks{order: make([]uint32, span/int64(block)), size: int64(block)}
	random := newOffsets(seed, 0, 1, math.MaxInt64)
	for i := range c.order {
		j := int(uint64(random.next()) % uint64(i+1))
		c.order[i] = c.order[j]
		c.order[j] = uint32(i)
	}
	return c
}

// take returns the offset of the next block, or false if there is none left.
func (c *coldBlocks) take() (int64, bool) {
	i := c.next.Add(1) - 1
	if i >= int64(len(c.order)) {
		return 0, false
	}
	return int64(c.order[i]) * c.size, true
}
