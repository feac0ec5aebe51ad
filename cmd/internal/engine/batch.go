// SPDX-License-Identifier: MIT

package engine

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/ringside-io/ringside/ufile"
)

// Batch reads many blocks of one file with one call from one goroutine.
type Batch interface {
	// Buffer returns the memory of block i, aligned for O_DIRECT. The caller may use it until
	// Close, except while Read runs.
	Buffer(i int) []byte
	// Read fills a buffer from each offset. There are as many offsets as buffers. It returns the
	// first error after all reads have ended. A block that is cut short by the end of the file is
	// an error.
	Read(offsets []int64) error
	// Close releases the batch and its file. No call may be in flight.
	Close() error
}

// Batcher is an engine that reads batches.
type Batcher interface {
	// OpenBatch opens the named file for batches of count blocks of size bytes each. For direct see
	// [Engine].
	OpenBatch(name string, direct bool, count, size int) (Batch, error)
}

// OpenBatch opens the file once. A goroutine of an errgroup reads each block, which is how a
// program with [os.File] has several reads in flight.
func (e OS) OpenBatch(name string, direct bool, count, size int) (Batch, error) {
	f, err := e.OpenRead(name, direct)
	if err != nil {
		return nil, err
	}
	b := &groupBatch{file: f.(*os.File), buffers: make([][]byte, count)}
	for i := range b.buffers {
		b.buffers[i] = ufile.AlignedBuffer(size)
	}
	return b, nil
}

type groupBatch struct {
	file    *os.File
	buffers [][]byte
}

func (b *groupBatch) Buffer(i int) []byte { return b.buffers[i] }

func (b *groupBatch) Read(offsets []int64) error {
	var group errgroup.Group
	for i, off := range offsets {
		group.Go(func() error {
			n, err := b.file.ReadAt(b.buffers[i], off)
			return whole(n, len(b.buffers[i]), off, err)
		})
	}
	return group.Wait()
}

func (b *groupBatch) Close() error { return b.file.Close() }

// OpenBatch opens the file and a [ufile.Batch] with registered memory and one range in flight per
// block.
func (e Ringside) OpenBatch(name string, direct bool, count, size int) (Batch, error) {
	f, err := e.OpenRead(name, direct)
	if err != nil {
		return nil, err
	}
	batch, err := ufile.NewBatch(ufile.BatchOptions{Depth: count, Buffers: count, BufferSize: size})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b := &ringBatch{file: f.(*ufile.File), batch: batch, ranges: make([]ufile.Range, count)}
	for i := range b.ranges {
		b.ranges[i] = ufile.Range{File: b.file, Buf: batch.Buffer(i)}
	}
	return b, nil
}

type ringBatch struct {
	file   *ufile.File
	batch  *ufile.Batch
	ranges []ufile.Range
}

func (b *ringBatch) Buffer(i int) []byte { return b.ranges[i].Buf }

func (b *ringBatch) Read(offsets []int64) error {
	ranges := b.ranges[:len(offsets)]
	for i, off := range offsets {
		ranges[i].Off = off
	}
	if err := b.batch.Read(ranges); err == nil {
		return nil
	}
	for i := range ranges {
		r := &ranges[i]
		if err := whole(r.N, len(r.Buf), r.Off, r.Err); err != nil {
			return err
		}
	}
	return nil
}

func (b *ringBatch) Close() error { return errors.Join(b.batch.Close(), b.file.Close()) }

// whole returns an error unless a block was read completely. An io.EOF right after the block is not
// an error.
func whole(n, want int, off int64, err error) error {
	switch {
	case n == want && (err == nil || err == io.EOF):
		return nil
	case err == nil || err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at offset %d: got %d: %w", want, off, n, err)
}
