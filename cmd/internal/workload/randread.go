// SPDX-License-Identifier: MIT

package workload

import (
	"fmt"
	"io"
	"math/bits"
	"reflect"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// bufferAlign satisfies O_DIRECT on every common device and file system.
const bufferAlign = 4096

// fullCheckEvery is how many reads pass between two whose content is checked completely. All
// others have their first and last unit identified.
const fullCheckEvery = 256

// RandRead reads blocks at random block-aligned offsets with ReadAt.
type RandRead struct {
	// Path is the file, Span how many bytes from its start are read.
	Path string `json:"path"`
	Span int64  `json:"span"`
	// Block is the size of one read in bytes.
	Block int `json:"block"`
	// Direct opens the file with O_DIRECT.
	Direct bool `json:"direct"`
	// Seed selects the sequence of offsets.
	Seed uint64 `json:"seed"`
	// Content is the seed of a file made by package datafile, whose reads are verified. For
	// any other file it is nil.
	Content *uint64 `json:"content,omitempty"`
}

// Open opens the file with the engine and returns what makes one goroutine's operations, for
// [measure.Run], and what closes the file afterwards.
func (w RandRead) Open(e engine.Engine) (newOp func(goroutine int) (measure.Op, error), closeFile func() error, err error) {
	blocks := uint64(w.Span) / uint64(max(w.Block, 1))
	if w.Block <= 0 || w.Block%datafile.UnitSize != 0 || blocks == 0 {
		return nil, nil, fmt.Errorf("block of %d bytes in a span of %d", w.Block, w.Span)
	}
	f, err := e.OpenRead(w.Path, w.Direct)
	if err != nil {
		return nil, nil, err
	}
	return func(goroutine int) (measure.Op, error) {
		r := &reader{
			file:    f,
			buf:     alignedBuffer(w.Block),
			blocks:  blocks,
			state:   w.Seed*0x9e3779b97f4a7c15 + uint64(goroutine)<<32,
			content: w.Content,
		}
		return r.readOne, nil
	}, f.Close, nil
}

// reader is one goroutine's share of a RandRead.
type reader struct {
	file    engine.File
	buf     []byte
	blocks  uint64
	state   uint64
	reads   uint64
	content *uint64
}

// readOne reads one block and identifies what came.
func (r *reader) readOne() (int, error) {
	block, _ := bits.Mul64(r.random(), r.blocks)
	off := int64(block) * int64(len(r.buf))
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
	if r.content == nil {
		return n, nil
	}
	r.reads++
	if r.reads%fullCheckEvery == 1 {
		return n, datafile.Check(r.buf, *r.content, off)
	}
	return n, datafile.CheckStamps(r.buf, *r.content, off)
}

// random returns the next value of the SplitMix64 sequence.
func (r *reader) random() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// alignedBuffer returns size bytes at an address that O_DIRECT accepts, each page touched, so that
// no measured read pays for the first use.
func alignedBuffer(size int) []byte {
	raw := make([]byte, size+bufferAlign)
	skip := 0
	if rest := int(reflect.ValueOf(raw).Pointer() % bufferAlign); rest != 0 {
		skip = bufferAlign - rest
	}
	buf := raw[skip : skip+size : skip+size]
	for i := 0; i < size; i += bufferAlign {
		buf[i] = 1
	}
	return buf
}
