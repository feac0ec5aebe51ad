// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"io"
	"math"
	"os"
	"sync"

	"github.com/ringside-io/ringside/internal/sys"
)

// copyPiece is how many bytes the kernel copies at a time: a few milliseconds.
const copyPiece = 8 << 20

// copying is one copy.
type copying struct {
	ctx              context.Context
	dst, src         *File
	freeDst, freeSrc func()
	o                CopyOptions

	from, delta int64 // where in the source it begins, and the way to dst
	copied      int64

	mu       sync.Mutex // of the workers
	moved    *sync.Cond // one of them has
	next, to int64      // what they have not begun
	current  []int64    // where each is
	failedAt int64
	err      error

	around *sys.FD // dst without O_DIRECT
}

func (c *copying) close() {
	if c.around != nil {
		c.around.Close()
	}
	c.freeSrc()
	c.freeDst()
}

// reached says that all before off has been copied.
func (c *copying) reached(off int64) {
	if n := off - c.from; n > c.copied {
		c.copied = n
		if c.o.Progress != nil {
			c.o.Progress(n)
		}
	}
}

// copyRange copies n bytes.
func (c *copying) copyRange(dstOff, srcOff, n int64) (err error) {
	c.from, c.delta = srcOff, dstOff-srcOff
	st, err := c.src.Stat()
	if err != nil {
		return err
	}
	dstSt, err := c.dst.Stat()
	if err != nil {
		return err
	}
	to := srcOff + n
	size := int64(math.MaxInt64) // of a device
	if st.Mode().IsRegular() {
		size = max(st.Size(), srcOff)
	}
	known := min(to, size)
	self := os.SameFile(st, dstSt)
	if self && srcOff < known && abs(c.delta) < known-srcOff {
		return c.dst.pathError("copy", errOverlap)
	}
	if st.Mode().IsRegular() && dstSt.Mode().IsRegular() && !self {
		err = c.sparse(st, dstSt.Size(), known)
	} else {
		err = c.data(srcOff, known, c.o.Blocks)
	}
	switch {
	case err != nil || known == to:
		return err
	case self: // which may have grown by what was copied
		return io.EOF
	}
	// The end, unless the file does not know its size, or has grown.
	return c.data(known, to, 1)
}

func abs(n int64) int64 { return max(n, -n) }

// data copies what lies between two offsets of the source.
func (c *copying) data(from, to int64, workers int) error {
	from, err := c.byKernel(from, to)
	if err != nil || from == to {
		return err
	}
	return c.pump(from, to, workers)
}

// byKernel has the kernel copy, and returns where that ended: early when it
// does not want to, for whatever reason, which a plain read or write then gives
// in os.File's words.
func (c *copying) byKernel(from, to int64) (int64, error) {
	if c.dst.fd < 0 || c.src.fd < 0 {
		return from, nil
	}
	if c.dst.direct || c.src.direct {
		// It would read and write small pieces, one after the other, but may
		// share the blocks.
		return c.share(from, to)
	}
	for from < to {
		if err := context.Cause(c.ctx); err != nil {
			return from, err
		}
		n, err := c.hold(func(dst, src int) (int, error) {
			return sys.CopyFileRange(dst, from+c.delta, src, from, int(min(to-from, copyPiece)))
		})
		if err != nil || n == 0 {
			return from, nil
		}
		from += int64(n)
		c.reached(from)
	}
	return from, nil
}

// share has the files share the whole blocks of a range, where that is possible.
func (c *copying) share(from, to int64) (int64, error) {
	end := to - to%DirectAlign
	if end <= from || (from|c.delta)%DirectAlign != 0 || to == math.MaxInt64 {
		return from, nil
	}
	if err := context.Cause(c.ctx); err != nil {
		return from, err
	}
	_, err := c.hold(func(dst, src int) (int, error) {
		return 0, sys.CloneRange(dst, from+c.delta, src, from, end-from)
	})
	if err != nil {
		return from, nil
	}
	c.reached(end)
	return end, nil
}

// hold calls do while neither descriptor can be closed.
func (c *copying) hold(do func(dst, src int) (int, error)) (int, error) {
	if !c.dst.lock.Acquire() {
		return 0, os.ErrClosed
	}
	defer c.dst.lock.Release()
	if !c.src.lock.Acquire() {
		return 0, os.ErrClosed
	}
	defer c.src.lock.Release()
	return do(c.dst.fd, c.src.fd)
}
