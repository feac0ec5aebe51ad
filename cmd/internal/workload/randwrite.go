// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// RandWrite overwrites blocks at random block-aligned offsets with WriteAt. Each block is stamped
// with its offset and a mark, as in package datafile. After the round the last blocks of each
// goroutine are read and checked.
type RandWrite struct {
	// Path is the file, whose content is lost. Span is the number of bytes, from its start, that
	// are overwritten.
	Path string `json:"path"`
	Span int64  `json:"span"`
	// Block is the size of one write in bytes.
	Block int `json:"block"`
	// Direct opens the file with O_DIRECT.
	Direct bool `json:"direct"`
	// Sync makes each block durable before the goroutine writes its next one.
	Sync bool `json:"sync,omitempty"`
	// Seed selects the sequence of offsets.
	Seed uint64 `json:"seed"`
	// Stamp marks the content. Each round needs another stamp, or the check would accept blocks of
	// an earlier round.
	Stamp uint64 `json:"stamp"`
}

// lastWrites is the number of writes that a goroutine remembers.
const lastWrites = 64

// overwriting is a file during a round.
type overwriting struct {
	RandWrite
	file    engine.WriteFile
	writers []*blockWriter
}

// Open opens the file with the engine. Use newOp to make operations and finish to close the file.
func (w RandWrite) Open(e engine.Engine) (*overwriting, error) {
	if err := checkBlocks(w.Block, w.Span); err != nil {
		return nil, err
	}
	writer, ok := e.(engine.Writer)
	if !ok {
		return nil, fmt.Errorf("engine %s does not write", e.Name())
	}
	f, err := writer.OpenWrite(w.Path, w.Direct)
	if err != nil {
		return nil, err
	}
	return &overwriting{RandWrite: w, file: f}, nil
}

// newOp returns one goroutine's operation, for [measure.Run].
func (o *overwriting) newOp(goroutine int) (measure.Op, error) {
	w := &blockWriter{
		offsets: newOffsets(o.Seed, goroutine, o.Block, o.Span),
		file:    o.file, buf: alignedBuffer(o.Block), stamp: o.Stamp, sync: o.Sync,
	}
	datafile.Fill(w.buf, o.Stamp, 0)
	o.writers = append(o.writers, w)
	return w.writeOne, nil
}

// finish closes the file. Unless the round failed, it reads the last blocks back first. It also
// writes the dirty pages to the device, which is not measured.
func (o *overwriting) finish(failed error) error {
	if failed != nil {
		return o.file.Close()
	}
	err := o.check()
	return errors.Join(err, o.file.Sync(), o.file.Close())
}

func (o *overwriting) check() error {
	buf := alignedBuffer(o.Block)
	for _, w := range o.writers {
		for _, off := range w.last[:min(w.writes, lastWrites)] {
			if n, err := o.file.ReadAt(buf, off); err != nil && (err != io.EOF || n < len(buf)) {
				return fmt.Errorf("read what was written at offset %d: %w", off, err)
			}
			if err := datafile.CheckStamps(buf, o.Stamp, off); err != nil {
				return err
			}
		}
	}
	return nil
}

// blockWriter is the state of one goroutine of a RandWrite.
type blockWriter struct {
	offsets
	file   engine.WriteFile
	buf    []byte
	stamp  uint64
	sync   bool
	last   [lastWrites]int64
	writes int
}

// writeOne stamps the block for its place, writes it, and makes it durable if the workload does.
func (w *blockWriter) writeOne() (int, error) {
	off := w.next()
	mark(w.buf, w.stamp, off)
	n, err := w.file.WriteAt(w.buf, off)
	if err != nil {
		return n, fmt.Errorf("write %d bytes at offset %d: %w", len(w.buf), off, err)
	}
	if w.sync {
		if err := w.file.Datasync(); err != nil {
			return n, fmt.Errorf("make the block at offset %d durable: %w", off, err)
		}
	}
	w.last[w.writes%lastWrites] = off
	w.writes++
	return n, nil
}

// mark stamps the first and the last unit, which [datafile.CheckStamps] checks. Filling the whole
// block would cost as much as a write to the page cache.
func mark(p []byte, stamp uint64, off int64) {
	for _, at := range [...]int{0, len(p) - datafile.UnitSize} {
		binary.LittleEndian.PutUint64(p[at:], stamp)
		binary.LittleEndian.PutUint64(p[at+8:], uint64(off)+uint64(at))
	}
}

// Run implements [Work].
func (w *RandWrite) Run(ctx context.Context, name string, plan measure.Plan) (measure.Sample, error) {
	return onFiles(ctx, w, name, plan)
}

// runWith measures overwrites.
func (w *RandWrite) runWith(ctx context.Context, e engine.Engine, plan measure.Plan) (s measure.Sample, err error) {
	o, err := w.Open(e)
	if err != nil {
		return measure.Sample{}, err
	}
	defer func() { err = errors.Join(err, o.finish(err)) }()
	return measure.Run(ctx, plan, o.newOp)
}
