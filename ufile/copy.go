// SPDX-License-Identifier: MIT

package ufile

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
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

// CopyOptions configure a copy. The zero value works.
type CopyOptions struct {
	// Progress, if it is set, is called with the number of bytes copied so far, from time
	// to time and at the end. The calls do not overlap, but may come from other
	// goroutines. The copy waits until Progress returns.
	Progress func(copied int64)
	// BlockSize is the size in bytes, and Blocks the number, of the blocks in flight
	// where the kernel does not copy by itself. 0 means 256 KiB and 4 blocks.
	BlockSize, Blocks int
}

// errOverlap is the error of copy_file_range(2) for ranges that overlap.
var errOverlap = syscall.EINVAL

// Copy copies from the position of src to the position of dst until the end of src, and
// moves both positions, like io.Copy. It returns the number of bytes copied; the error is
// nil at the end of src. [CopyRange] describes how the data is copied and what ctx does.
// If one side is a pipe, splice(2) copies. Other files that are neither regular files nor
// block devices are copied through memory. A wait for a pipe ends at the pipe's deadline
// or when the pipe is closed. ctx does not end it.
func Copy(ctx context.Context, dst, src Endpoint, o CopyOptions) (int64, error) {
	c, err := newCopying(ctx, dst, src, o)
	if err != nil {
		return 0, err
	}
	defer c.close()
	if !c.dst.seekable() || !c.src.seekable() || c.dst.mayAppend() {
		return c.stream()
	}
	return c.copyFromPositions(math.MaxInt64)
}

// copyFromPositions copies up to most bytes from the position of src to the position of
// dst, and moves both positions.
func (c *copying) copyFromPositions(most int64) (int64, error) {
	from, err := c.src.std().Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	to, err := c.dst.std().Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	if err = c.copyRange(to, from, min(most, math.MaxInt64-max(from, to))); err == io.EOF {
		err = nil
	}
	_, srcErr := c.src.std().Seek(from+c.copied, io.SeekStart)
	_, dstErr := c.dst.std().Seek(to+c.copied, io.SeekStart)
	if err == nil {
		err = cmp.Or(srcErr, dstErr)
	}
	return c.copied, err
}

// CopyRange copies n bytes from the offset srcOff of src to the offset dstOff of dst. It
// does not use or move the files' positions. It returns how many bytes were copied, from
// the start and without a gap. If these are fewer than n it returns an error, io.EOF at
// the end of src. Both files must be regular files or block devices. dst is never
// truncated, and grows where needed.
//
// Where it can, the kernel copies the data or lets the files share blocks
// (copy_file_range, Linux 4.5). If one side has O_DIRECT, or the kernel refuses, several
// blocks are read and written at a time, through the ring where that is faster. Offsets
// need no alignment. Holes of a sparse src become holes of dst.
//
// When ctx ends, the copy stops between two pieces. It returns the number of bytes copied
// by then, and context.Cause(ctx). After an error, a few blocks after the counted bytes
// may have been copied, too.
//
// If src and dst are the same file and the ranges overlap, the error is EINVAL. The files
// must stay open. Closing a File stops the copy, with os.ErrClosed.
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

// refuseAppend returns the error of os.File.WriteAt for a file that is opened for
// appending.
func (f *File) refuseAppend(off int64) (int64, error) {
	_, err := f.std().WriteAt(nil, off)
	if err == nil {
		err = f.pathError("copy", syscall.EBADF)
	}
	return 0, err
}

// newCopying makes Files of both sides. The zero File, of a side that is nil, returns
// the errors of os.
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

// borrow returns a File for one side and a function that releases it.
func borrow(e Endpoint) (*File, func(), error) {
	switch e := e.(type) {
	case *File:
		if !e.none() {
			return e.now(), func() { runtime.KeepAlive(e) }, nil
		}
	case *os.File:
		if e != nil {
			return borrowOS(e)
		}
	}
	return nil, nil, os.ErrInvalid
}

// copyPiece is how many bytes the kernel copies at a time: a few milliseconds.
const copyPiece = 8 << 20

// copying is one copy.
type copying struct {
	ctx              context.Context
	dst, src         *File
	freeDst, freeSrc func()
	o                CopyOptions

	from, delta int64 // the offset in the source, and the distance to that in dst
	copied      int64

	mu       sync.Mutex // of the workers
	moved    *sync.Cond // a worker has finished a piece
	next, to int64      // the range that no worker has begun
	current  []int64    // the offset of each worker's piece
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
	case self: // the file may have grown by the copied bytes
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

// byKernel lets the kernel copy and returns the offset it reached. It stops early
// on any error: the plain read or write that follows returns the error in the form
// of os.File.
func (c *copying) byKernel(from, to int64) (int64, error) {
	if c.dst.fd < 0 || c.src.fd < 0 {
		return from, nil
	}
	if c.dst.direct || c.src.direct {
		// The kernel would copy small pieces one after the other, but it may let
		// the files share blocks.
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

// share lets the files share the whole blocks of a range, where that is possible.
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

// ReadFrom copies from r to the file's position until the end of r, like
// os.File.ReadFrom. From a File, an os.File or a socket the kernel copies by itself, even
// if r is an io.LimitedReader around one. If one of two files has O_DIRECT, several
// blocks are in flight at a time; see [Copy].
func (f *File) ReadFrom(r io.Reader) (int64, error) {
	limited, _ := r.(*io.LimitedReader)
	inner := r
	if limited != nil {
		inner = limited.R
	}
	var src *os.File
	switch from := inner.(type) {
	case *File:
		if f.overlaps(from) {
			return f.readFromFile(from, limited)
		}
		src = from.std()
	case *os.File:
		src = from
	default:
		return f.std().ReadFrom(r)
	}
	if limited == nil {
		return f.std().ReadFrom(src)
	}
	within := io.LimitedReader{R: src, N: limited.N}
	n, err := f.std().ReadFrom(&within)
	limited.N = within.N
	return n, err
}

// overlaps reports whether a copy with several blocks in flight is faster than one
// by the kernel: one of two regular files has O_DIRECT.
func (f *File) overlaps(src *File) bool {
	return !f.none() && !src.none() && (f.direct || src.direct) &&
		f.accelerated() && src.accelerated() && !f.now().mayAppend()
}

// now returns the file with the flags that it has now: fcntl(2) may have changed them
// since it was opened. The result is f's while f is reachable: the System knows f alone.
func (f *File) now() *File {
	f.seekable() // joins the System, which the result must not
	now := File{state: f.state, direct: f.direct, appends: f.appends}
	if flags, err := sys.OpenFlags(f.fd); err == nil {
		now.setFlags(flags)
	} else {
		now.unsure = sys.OAppend != 0
	}
	return &now
}

// readFromFile copies from a file with several blocks in flight.
func (f *File) readFromFile(src *File, limited *io.LimitedReader) (int64, error) {
	c, err := newCopying(context.Background(), f, src, CopyOptions{})
	if err != nil {
		return 0, err
	}
	defer c.close()
	most := int64(math.MaxInt64)
	if limited != nil {
		most = max(limited.N, 0)
	}
	n, err := c.copyFromPositions(most)
	if limited != nil {
		limited.N -= n
	}
	return n, err
}

// WriteTo copies from the file's position to w until the end of the file, like
// os.File.WriteTo. To a File, an os.File or a socket the kernel copies by itself. A file
// with O_DIRECT is read ahead meanwhile. If w fails, the file's position is then after
// the last byte that w accepted.
func (f *File) WriteTo(w io.Writer) (int64, error) {
	if f.none() {
		return f.std().WriteTo(w)
	}
	switch to := w.(type) {
	case *File:
		return to.ReadFrom(f)
	case *os.File:
		if !f.direct || !f.accelerated() {
			return f.std().WriteTo(to)
		}
	}
	if !f.direct || !f.accelerated() {
		return f.std().WriteTo(w)
	}
	off, err := f.std().Seek(0, io.SeekCurrent)
	if err != nil {
		return f.std().WriteTo(w)
	}
	r := NewReader(f, ReaderOptions{Offset: off})
	defer r.Close()
	n, err := r.WriteTo(w)
	if _, seekErr := f.std().Seek(off+n, io.SeekStart); err == nil {
		err = seekErr
	}
	return n, err
}
