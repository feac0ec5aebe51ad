// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"reflect"
	"sync/atomic"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// bufferAlign satisfies O_DIRECT on every common device and file system.
const bufferAlign = 4096

// fullCheckEvery is the number of reads of which one is checked completely. Of the others only the
// first and the last unit are checked.
const fullCheckEvery = 256

// RandRead reads blocks at random block-aligned offsets with ReadAt.
type RandRead struct {
	// Path is the file. Span is the number of bytes, from its start, that are read.
	Path string `json:"path"`
	Span int64  `json:"span"`
	// Block is the size of one read in bytes.
	Block int `json:"block"`
	// Direct opens the file with O_DIRECT.
	Direct bool `json:"direct"`
	// Cold evicts the file from the page cache before the measured window. In the window no block
	// is read twice, and read-ahead is off.
	Cold bool `json:"cold,omitempty"`
	// Seed selects the sequence of offsets.
	Seed uint64 `json:"seed"`
	// Content is the seed of a file made by package datafile, whose reads are verified. It is nil
	// for any other file.
	Content *uint64 `json:"content,omitempty"`
}

// Open opens the file with the engine. It returns a function that makes the operations of one of
// so many goroutines, for [measure.Run], and a function that closes the file.
func (w RandRead) Open(e engine.Engine, goroutines int) (newOp func(goroutine int) (measure.Op, error), closeFile func() error, err error) {
	if err := w.check(); err != nil {
		return nil, nil, err
	}
	f, err := e.OpenRead(w.Path, w.Direct)
	if err != nil {
		return nil, nil, err
	}
	buffer, done := func() []byte { return alignedBuffer(w.Block) }, f.Close
	if e, ok := e.(engine.Pooler); ok {
		pool, err := e.NewBuffers(goroutines, w.Block)
		if err != nil {
			return nil, nil, errors.Join(err, f.Close())
		}
		buffer, done = pool.Get, func() error { return errors.Join(f.Close(), pool.Close()) }
	}
	return func(goroutine int) (measure.Op, error) {
		r := w.reader(goroutine)
		r.file, r.buf = f, buffer()
		return r.readOne, nil
	}, done, nil
}

// Run implements [Work].
func (w *RandRead) Run(ctx context.Context, name string, plan measure.Plan) (measure.Sample, error) {
	return onFiles(ctx, w, name, plan)
}

func (w *RandRead) runWith(ctx context.Context, e engine.Engine, plan measure.Plan) (s measure.Sample, err error) {
	if w.Cold {
		return w.cold(ctx, e, plan)
	}
	newOp, closeFile, err := w.Open(e, plan.Goroutines)
	if err != nil {
		return measure.Sample{}, err
	}
	defer func() { err = errors.Join(err, closeFile()) }()
	return measure.Run(ctx, plan, newOp)
}

func (w RandRead) check() error { return checkBlocks(w.Block, w.Span) }

// checkBlocks returns an error unless the span has at least one block of a valid size.
func checkBlocks(block int, span int64) error {
	if block <= 0 || block%datafile.UnitSize != 0 || span < int64(block) {
		return fmt.Errorf("block of %d bytes in a span of %d", block, span)
	}
	return nil
}

// reader returns the state of a goroutine, without its file and buffer.
func (w RandRead) reader(goroutine int) reader {
	return reader{offsets: newOffsets(w.Seed, goroutine, w.Block, w.Span), content: w.Content}
}

// reader is the state of one goroutine of a RandRead.
type reader struct {
	offsets
	file    engine.File
	buf     []byte
	reads   uint64
	content *uint64
}

// readOne reads one block and verifies it.
func (r *reader) readOne() (int, error) { return r.readAt(r.next()) }

func (r *reader) readAt(off int64) (int, error) {
	n, err := r.file.ReadAt(r.buf, off)
	if err == io.EOF && n == len(r.buf) {
		err = nil
	}
	if n < len(r.buf) || err != nil {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return n, fmt.Errorf("read %d bytes at offset %d: got %d: %w", len(r.buf), off, n, err)
	}
	return n, r.verify(r.buf, off)
}

// verify checks that block has the content of the file at off.
func (r *reader) verify(block []byte, off int64) error {
	if r.content == nil {
		return nil
	}
	r.reads++
	if r.reads%fullCheckEvery == 1 {
		return datafile.Check(block, *r.content, off)
	}
	return datafile.CheckStamps(block, *r.content, off)
}

// offsets is a sequence of random block-aligned offsets.
type offsets struct {
	state, blocks uint64
	size          int
}

// newOffsets returns the sequence for a seed and a goroutine.
func newOffsets(seed uint64, goroutine, block int, span int64) offsets {
	return offsets{
		state: seed*0x9e3779b97f4a7c15 + uint64(goroutine)<<32, blocks: uint64(span) / uint64(block), size: block,
	}
}

func (o *offsets) next() int64 {
	block, _ := bits.Mul64(datafile.SplitMix(&o.state), o.blocks)
	return int64(block) * int64(o.size)
}

// alignedBuffer returns size bytes at an address that O_DIRECT accepts. Each page has been touched,
// so that no measured read causes a page fault.
func alignedBuffer(size int) []byte {
	raw := make([]byte, size+bufferAlign)
	skip := 0
	if rest := int(reflect.ValueOf(raw).Pointer() % bufferAlign); rest != 0 {
		skip = bufferAlign - rest
	}
	buf := raw[skip : skip+size : skip+size]
	touch(buf)
	return buf
}

// touch writes to each page.
func touch(buf []byte) {
	for i := 0; i < len(buf); i += bufferAlign {
		buf[i] = 1
	}
}

// cold measures reads of blocks that are not in the page cache. The window ends early once each
// block of the span has been read.
func (w RandRead) cold(ctx context.Context, e engine.Engine, plan measure.Plan) (s measure.Sample, err error) {
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
	plan.Between = func() error {
		if blocks.next.Load() > int64(len(blocks.order)/2) || plan.Turns == nil {
			blocks.next.Store(0)
		}
		return datafile.Evict(w.Path)
	}
	return measure.Run(ctx, plan, func(goroutine int) (measure.Op, error) {
		r := &coldReader{reader: w.reader(goroutine), blocks: blocks}
		r.file, r.buf = f, alignedBuffer(w.Block)
		return r.readNext, nil
	})
}

// coldReader is the state of one goroutine of a cold read.
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

// coldBlocks returns the blocks of a span in random order, each once.
type coldBlocks struct {
	order []uint32
	size  int64
	next  atomic.Int64
}

// newColdBlocks returns the order for a seed.
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

// Burner is a RandRead while other goroutines compute and never block.
type Burner struct {
	RandRead
	// Burners is the number of computing goroutines.
	Burners int `json:"burners"`
}

// burnSteps makes a unit of computation about 25 µs long on a processor of 2020. Counting units
// then costs nothing, and a unit is far shorter than a time slice.
const burnSteps = 20000

// burner returns an operation that performs one unit of computation.
func burner(seed uint64) measure.Op {
	state := seed
	return func() (int, error) {
		var sum uint64
		for range burnSteps {
			sum ^= datafile.SplitMix(&state)
		}
		if sum == 0 && state == seed { // practically never; keeps the compiler from removing the loop
			return 0, errors.New("the sequence has ended")
		}
		return 0, nil
	}
}

// Run implements [Work].
func (w *Burner) Run(ctx context.Context, name string, plan measure.Plan) (measure.Sample, error) {
	return onFiles(ctx, w, name, plan)
}

// runWith measures reads and units of computation. It reports no CPU time, because most of it is
// that of the computation.
func (w *Burner) runWith(ctx context.Context, e engine.Engine, plan measure.Plan) (s measure.Sample, err error) {
	if w.Burners < 1 {
		return measure.Sample{}, fmt.Errorf("%d computing goroutines", w.Burners)
	}
	newOp, closeFile, err := w.Open(e, plan.Goroutines)
	if err != nil {
		return measure.Sample{}, err
	}
	defer func() { err = errors.Join(err, closeFile()) }()
	for b := range w.Burners {
		plan.Beside = append(plan.Beside, burner(w.Seed+uint64(b)))
	}
	plan.Adjust = func(s *measure.Sample) error {
		s.CPU = nil
		return nil
	}
	return measure.Run(ctx, plan, newOp)
}
