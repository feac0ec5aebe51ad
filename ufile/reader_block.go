// SPDX-License-Identifier: MIT

package ufile

import (
	"io"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// block is one piece of the file in flight, or what was read of it.
type block struct {
	r    *Reader
	mem  []byte // aligned, of the reader's block size
	off  int64
	want int

	busy bool          // done has not been taken
	done chan struct{} // one for each start
	n    int
	err  error

	rings *reactor.Reactor
	op    reactor.Op
	lost  error                // why the rings cannot be used
	over  func(reactor.Result) // b.completed
	read  func()               // b.plain
}

func newBlock(r *Reader) *block {
	b := &block{r: r, done: make(chan struct{}, 1)}
	b.over, b.read = b.completed, b.plain
	return b
}

// end is where in the file the block ends.
func (b *block) end() int64 { return b.off + int64(b.want) }

// holds says whether a position lies in the block.
func (b *block) holds(pos int64) bool { return b.off <= pos && pos < b.end() }

// from returns what was read from a position on.
func (b *block) from(pos int64) []byte { return b.mem[min(int(pos-b.off), b.n):b.n] }

// wait waits until the kernel has let go of the memory.
func (b *block) wait() {
	if !b.busy {
		return
	}
	<-b.done
	b.busy = false
	f := b.r.f
	if b.lost != nil {
		b.err = f.pathError("read", b.lost)
		f.fallsBack(b.rings, b.lost)
	}
	b.op, b.rings, b.lost = reactor.Op{}, nil, nil
}

// way is how blocks are read.
type way int

const (
	inline   way = iota // when they are asked for
	threaded            // ahead, each on a goroutine
	queued              // ahead, through the ring
)

// how says how the blocks of a file are read. Read-ahead of the kernel's is as
// good as ours, unless there is none.
func (r *Reader) how() way {
	f := r.f
	switch {
	case !f.seekable(), !f.direct && f.sys.opts.Mode != ModeRing:
		return inline
	case r.max == 1 && f.sys.opts.Mode == ModeAuto: // one read at a time
		return inline
	case !f.accelerated() || f.sys.plain.Load() || !f.ringable():
		if !f.direct {
			return inline
		}
		return threaded
	}
	return queued
}

// start starts to read.
func (b *block) start() {
	b.n, b.err, b.busy = 0, nil, true
	f := b.r.f
	if !f.lock.Acquire() {
		b.err = f.pathError("read", os.ErrClosed)
		b.done <- struct{}{}
		return
	}
	if b.mem == nil {
		b.mem = AlignedBuffer(b.r.size)
	}
	how := b.r.how()
	if how == queued && !f.mayRead() {
		how = inline
	}
	switch how {
	case inline:
		b.plain()
	case threaded:
		go b.read()
	case queued:
		b.ring()
	}
}

// ring starts to read through the ring.
func (b *block) ring() {
	f := b.r.f
	rings, err := f.sys.reactor()
	switch {
	case err != nil:
		b.finish(0, f.pathError("read", err))
		return
	case rings == nil:
		go b.read()
		return
	}
	b.rings = rings
	b.op = reactor.Op{Buf: b.mem, Keep: f, Bytes: b.want}
	b.op.SQE.Read(uring.Fd(f.fd), b.mem[:b.want], b.off)
	f.submitAs(&b.op.SQE)
	f.ringed.Add(1)
	b.queue()
}

// queue hands the operation to the ring. When that has no room, or has failed, a
// plain call answers.
func (b *block) queue() {
	if _, err := b.rings.Queue(&b.op, b.over); err != nil {
		go b.read()
	}
}

// completed takes the result of the ring.
func (b *block) completed(res reactor.Result) {
	switch errno := res.Errno(); {
	case res.Cause != nil: // the kernel may still write to the memory
		b.mem, b.lost = nil, res.Cause
		b.finish(0, nil)
	case errno == syscall.EAGAIN && b.op.SQE.Raw().Flags&uint8(uring.SQEAsync) == 0: // the kernel could not even wait for it
		b.op.SQE.SetFlags(uring.SQEAsync)
		b.queue()
	case errno == syscall.EINTR:
		b.queue()
	case errno != 0:
		b.finish(0, b.r.f.pathError("read", errno))
	default:
		b.finish(int(res.Res), nil)
	}
}

// readOn reads the rest of a block of which only a part was read.
func (b *block) readOn() {
	f := b.r.f
	if !f.seekable() || !f.lock.Acquire() {
		return
	}
	defer f.lock.Release()
	b.n, b.err = f.readOn(b.mem[:b.want], b.off, b.n)
}

// plain reads by a plain call.
func (b *block) plain() {
	f := b.r.f
	if f.seekable() {
		b.finish(f.readPlain(b.mem[:b.want], b.off))
		return
	}
	n, err := f.f.ReadAt(b.mem[:b.want], b.off)
	if err == io.EOF {
		err = nil
	}
	b.finish(n, err)
}

// finish ends the read of a block.
func (b *block) finish(n int, err error) {
	b.n, b.err = n, err
	b.r.f.lock.Release()
	b.done <- struct{}{}
}
