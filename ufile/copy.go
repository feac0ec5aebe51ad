// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"syscall"
)

// Endpoint is one side of a copy: a *[File] or an *os.File.
type Endpoint interface {
	io.ReadWriteSeeker
	io.ReaderAt
	io.WriterAt
	Name() string
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	SyscallConn() (syscall.RawConn, error)
}

// CopyOptions configure a copy; the zero value is fine.
type CopyOptions struct {
	// Progress is told how many bytes have been copied, now and then and at the
	// end. It is not called concurrently, but perhaps on other goroutines, and
	// holds up the copy.
	Progress func(copied int64)
	// BlockSize and Blocks say how data is read and written where the kernel
	// does not copy by itself: so many blocks of so many bytes are under way at
	// a time. 0 means 256 KiB and 4.
	BlockSize, Blocks int
}

// errOverlap is what copy_file_range(2) says of it.
var errOverlap = syscall.EINVAL

// Copy copies what src holds from its position on to the position of dst, and
// moves both, as io.Copy. It returns how many bytes were copied and why it
// stopped: nil at the end of src. See [CopyRange] for how, and for ctx; what is
// not a regular file or a block device is copied by splice(2) if it is a pipe,
// else through memory. Waiting for a pipe is ended by its deadline, or by closing
// it, not by ctx.
func Copy(ctx context.Context, dst, src Endpoint, o CopyOptions) (int64, error) {
	c, err := newCopying(ctx, dst, src, o)
	if err != nil {
		return 0, err
	}
	defer c.close()
	if !c.dst.seekable() || !c.src.seekable() || c.dst.appends {
		return c.stream()
	}
	return c.copyFromPositions(math.MaxInt64)
}

// copyFromPositions copies at most so many bytes from position to position and
// moves both.
func (c *copying) copyFromPositions(most int64) (int64, error) {
	from, err := c.src.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	to, err := c.dst.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	if err = c.copyRange(to, from, min(most, math.MaxInt64-max(from, to))); err == io.EOF {
		err = nil
	}
	_, srcErr := c.src.f.Seek(from+c.copied, io.SeekStart)
	_, dstErr := c.dst.f.Seek(to+c.copied, io.SeekStart)
	if err == nil {
		err = errors.Join(srcErr, dstErr)
	}
	return c.copied, err
}

// CopyRange copies n bytes of src, from srcOff on, to dstOff of dst, without a
// use of the files' positions. It returns how many bytes were copied, from the
// start and without a gap, and an error when these are fewer than n: io.EOF at
// the end of src. Both must be regular files or block devices; dst is never
// truncated, and grows where need be.
//
// The kernel copies by itself (copy_file_range, Linux 4.5), or has the files
// share blocks, where it can. With O_DIRECT on a side, and where the kernel
// refuses, several blocks are read and written at a time, through the ring
// where that is faster; offsets then need no alignment. Holes of a sparse src
// become holes of dst.
//
// The end of ctx stops the copy between two pieces of it: the count is that of
// the bytes copied by then and the error context.Cause(ctx). After an error, a
// few blocks behind the count may have been copied too.
//
// Ranges of one file that overlap are refused with EINVAL. The files must stay
// open; closing a File stops the copy, with os.ErrClosed.
func CopyRange(ctx context.Context, dst Endpoint, dstOff int64, src Endpoint, srcOff, n int64, o CopyOptions) (int64, error) {
	c, err := newCopying(ctx, dst, src, o)
	if err != nil {
		return 0, err
	}
	defer c.close()
	switch {
	case srcOff < 0 || n < 0:
		return 0, c.src.pathError("copy", errNegative)
	case dstOff < 0:
		return 0, c.dst.pathError("copy", errNegative)
	case n > math.MaxInt64-max(srcOff, dstOff):
		return 0, c.dst.pathError("copy", syscall.EINVAL)
	case c.dst.appends:
		return c.dst.refuseAppend(dstOff)
	}
	err = c.copyRange(dstOff, srcOff, n)
	return c.copied, err
}

// refuseAppend answers what os.File.WriteAt does for a file that is opened for
// appending.
func (f *File) refuseAppend(off int64) (int64, error) {
	_, err := f.f.WriteAt(nil, off)
	if err == nil {
		err = f.pathError("copy", syscall.EBADF)
	}
	return 0, err
}

// newCopying makes Files of both sides. The zero File of a side that is nil
// answers as os does.
func newCopying(ctx context.Context, dst, src Endpoint, o CopyOptions) (*copying, error) {
	if o.BlockSize <= 0 {
		o.BlockSize = readerBlock
	}
	if o.Blocks <= 0 {
		o.Blocks = readerBlocks
	}
	o.BlockSize = (o.BlockSize + DirectAlign - 1) / DirectAlign * DirectAlign
	c := &copying{ctx: ctx, o: o, failedAt: math.MaxInt64}
	c.moved = sync.NewCond(&c.mu)
	var err error
	if c.dst, c.freeDst, err = borrow(dst); err != nil {
		return nil, err
	}
	if c.src, c.freeSrc, err = borrow(src); err != nil {
		c.freeDst()
		return nil, err
	}
	return c, nil
}

// borrow returns a File for one side and how to give it back.
func borrow(e Endpoint) (*File, func(), error) {
	switch e := e.(type) {
	case *File:
		if e.std() != nil {
			return e, func() {}, nil
		}
	case *os.File:
		if e != nil {
			return borrowOS(e)
		}
	}
	return nil, nil, os.ErrInvalid
}
