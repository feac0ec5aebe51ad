// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/uring"
)

const (
	// ReadsBlock is the size of each read of [Reads] in bytes.
	ReadsBlock = 4096
	// ReadsChunk is the number of reads between two readings of the clock.
	ReadsChunk = 1024
)

// Reads reads blocks at random offsets of a file on one ring. Depth reads are in flight; each one
// that completes is verified and replaced. It measures the overhead of a ring with operations of the
// kernel.
type Reads struct {
	// Ring is RingDefault or RingDefer. Both submit and wait in one call.
	Ring string `json:"ring"`
	// Depth is the number of reads in flight.
	Depth int `json:"depth"`
	// Path is a file made by package datafile. Span is the number of bytes, from its start, that
	// are read. Content is the seed of its content.
	Path    string `json:"path"`
	Span    int64  `json:"span"`
	Content uint64 `json:"content"`
	// Direct opens the file with O_DIRECT.
	Direct bool `json:"direct"`
	// Seed selects the sequence of offsets.
	Seed uint64 `json:"seed"`
}

// Run implements [Work].
func (w *Reads) Run(ctx context.Context, name string, plan measure.Plan) (measure.Sample, error) {
	return runRing(ctx, w, name, plan)
}

// Options returns the options of the ring.
func (w Reads) Options() *uring.Options { return Nop{Ring: w.Ring}.Options() }

// Ops returns the number of reads of one operation.
func (w Reads) Ops() int { return ReadsChunk }

// Open returns the operation of the only goroutine, for [measure.Run], and a function that closes
// the ring and the file. One operation is [ReadsChunk] reads, all of which it completes. The first
// operation opens the ring, because the ring may belong to the thread that opens it.
func (w Reads) Open() (op measure.Op, closeRing func() error, err error) {
	l, err := w.newLoop()
	if err != nil {
		return nil, nil, err
	}
	return l.chunk, l.close, nil
}

// readLoop is a ring and a file with the state of their loop. One goroutine uses it at a time.
type readLoop struct {
	ringOfLoop
	offsets
	file    engine.File
	fd      uring.FD
	content uint64
	// bufs are the buffers, at the offset of the read into each of them. free are the buffers
	// without a read. The user data of a read is the index of its buffer.
	bufs [][]byte
	at   []int64
	free []int
	cqes []uring.CQE
}

func (w Reads) newLoop() (*readLoop, error) {
	ring, err := newRingOfLoop(w.Ring, w.Options())
	if err != nil {
		return nil, err
	}
	if w.Depth < 1 || w.Depth > NopEntries {
		return nil, fmt.Errorf("depth of %d reads: must be 1 to %d", w.Depth, NopEntries)
	}
	if err := checkBlocks(ReadsBlock, w.Span); err != nil {
		return nil, err
	}
	f, err := engine.OS{}.OpenRead(w.Path, w.Direct)
	if err != nil {
		return nil, err
	}
	l := &readLoop{
		ringOfLoop: ring, offsets: newOffsets(w.Seed, 0, ReadsBlock, w.Span), file: f, content: w.Content,
		fd: uring.Fd(int(f.(interface{ Fd() uintptr }).Fd())), at: make([]int64, w.Depth), cqes: make([]uring.CQE, w.Depth),
	}
	for i := range w.Depth {
		l.bufs = append(l.bufs, alignedBuffer(ReadsBlock))
		l.free = append(l.free, i)
	}
	return l, nil
}

// close closes the ring and the file. No read is in flight unless a chunk has failed.
func (l *readLoop) close() error { return errors.Join(l.ringOfLoop.close(), l.file.Close()) }

// chunk makes the reads of one operation.
func (l *readLoop) chunk() (int, error) {
	if err := l.open(); err != nil {
		return 0, err
	}
	for sent, done := 0, 0; done < ReadsChunk; {
		for ; len(l.free) > 0 && sent < ReadsChunk; sent++ {
			if err := l.send(); err != nil {
				return 0, err
			}
		}
		if _, err := l.ring.SubmitAndWait(1); err != nil {
			return 0, err
		}
		n, err := l.reap()
		if err != nil {
			return 0, err
		}
		done += n
	}
	return ReadsChunk * ReadsBlock, nil
}

// send prepares a read into a free buffer.
func (l *readLoop) send() error {
	e := l.ring.SQE()
	if e == nil {
		return uring.ErrSQFull
	}
	last := len(l.free) - 1
	i := l.free[last]
	l.free = l.free[:last]
	l.at[i] = l.next()
	e.Read(l.fd, l.bufs[i], l.at[i]).SetUserData(uint64(i))
	return nil
}

// reap verifies the reads that have completed, and returns their number.
func (l *readLoop) reap() (int, error) {
	n := l.ring.Reap(l.cqes)
	for i := range l.cqes[:n] {
		c := &l.cqes[i]
		if c.Res != ReadsBlock {
			return n, fmt.Errorf("a read of %d bytes at offset %d returned %d", ReadsBlock, l.at[c.UserData], c.Res)
		}
		if err := datafile.CheckStamps(l.bufs[c.UserData], l.content, l.at[c.UserData]); err != nil {
			return n, err
		}
		l.free = append(l.free, int(c.UserData))
	}
	return n, nil
}
