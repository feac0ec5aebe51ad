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

// Batch reads many blocks of one file by one call of one goroutine.
type Batch interface {
	// Buffer returns the memory of block i, aligned for O_DIRECT. It is the caller's except
	// while Read runs, until Close.
	Buffer(i int) []byte
	// Read fills a buffer from each offset: as many as the batch has buffers. It returns when
	// all reads have ended, with the first error; a block that is cut short by the end of the
	// file is one.
	Read(offsets []int64) error
	// Close releases the batch and its file. No call may be in flight.
	Close() error
}

// Batcher is an engine that reads batches.
type Batcher interface {
	// OpenBatch opens the named file for batches of count blocks of size bytes each; direct is
	// as of [Engine].
	OpenBatch(name string, direct bool, count, size int) (Batch, error)
}

// OpenBatch opens the file once; each block is then read by a goroutine of an errgroup, which is
// how a program with [os.File] has several reads in flight.
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

// OpenBatch opens the file and a [ufile.Batch] that has as many ranges in flight as there are
// blocks, in its own registered memory.
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

// whole returns an error unless a block was read completely. The end of the file just behind it is not an
// error.
func whole(n, want int, off int64, err error) error {
	switch {
	case n == want && (err == nil || err == io.EOF):
		return nil
	case err == nil || err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at offset %d: got %d: %w", want, off, n, err)
}
