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

	"github.com/ringside-io/ringside/internal/sys"
)

// pump copies through memory: each of some workers takes the next piece, reads
// it, and writes it.
func (c *copying) pump(from, to int64, workers int) error {
	c.next, c.to = from, to
	pieces := (to - from - 1) / int64(c.o.BlockSize)
	workers = int(min(int64(workers), pieces+1))
	c.current = make([]int64, workers)
	for i := range c.current {
		c.current[i] = math.MaxInt64
	}
	var wg sync.WaitGroup
	for i := 1; i < workers; i++ {
		wg.Go(func() { c.work(i) })
	}
	c.lead(&wg)
	if c.err == nil && c.next < c.to {
		return context.Cause(c.ctx)
	}
	return c.err
}

// lead works on the caller's goroutine and waits for the other workers, also if Progress
// panics: then the files may be closed as soon as lead has ended.
func (c *copying) lead(wg *sync.WaitGroup) {
	defer wg.Wait()
	returned := false
	defer func() {
		if !returned {
			c.fail(c.from, errAbandoned)
		}
	}()
	c.work(0)
	returned = true
}

// errAbandoned ends the workers of a copy whose caller unwinds. No caller gets it.
var errAbandoned = errors.New("the copy was abandoned")

// work copies pieces until there are no more.
func (c *copying) work(i int) {
	var b copyBuffer
	for {
		off, n := c.claim(i)
		if n == 0 {
			return
		}
		done, err := c.piece(&b, off, n)
		if err != nil {
			c.fail(off+int64(done), err)
		}
	}
}

// claim ends a worker's piece and returns the next one, of 0 bytes when the worker
// is to end. Pieces end at block boundaries of dst. No worker gets far ahead of the
// slowest, so that little is copied behind the count if the slowest fails.
func (c *copying) claim(i int) (off int64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current[i] = math.MaxInt64
	c.moved.Broadcast()
	c.reached(c.done())
	size := int64(c.o.BlockSize)
	for c.err == nil && c.next < c.to && c.next-c.done() >= 2*int64(c.o.Blocks)*size {
		c.moved.Wait()
	}
	if c.err != nil || c.next >= c.to || c.ctx.Err() != nil {
		return 0, 0
	}
	off = c.next
	n = int(min(size-(off+c.delta)%size, c.to-off))
	c.current[i] = off
	c.next += int64(n)
	return off, n
}

// done returns the offset of the first piece that has not been copied. The caller
// holds mu.
func (c *copying) done() int64 {
	first := min(c.next, c.failedAt)
	for _, off := range c.current {
		first = min(first, off)
	}
	return first
}

// fail records the first offset at which the copy cannot go on.
func (c *copying) fail(off int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if off < c.failedAt {
		c.failedAt, c.err = off, err
	}
}

// copyBuffer is the memory of a worker.
type copyBuffer struct {
	mem    []byte // a block, aligned
	bounce []byte // a block and its surroundings, for offsets that O_DIRECT cannot read into mem
}

// piece copies n bytes from off and returns how many have been written.
func (c *copying) piece(b *copyBuffer, off int64, n int) (int, error) {
	if b.mem == nil {
		b.mem = AlignedBuffer(c.o.BlockSize)
	}
	got, err := c.read(b, off, n)
	written := 0
	for written < got {
		m, err := c.write(b.mem[written:got], off+c.delta+int64(written))
		written += m
		if err != nil {
			return written, err
		}
		if m == 0 {
			return written, c.dst.pathError("write", io.ErrUnexpectedEOF)
		}
	}
	return written, err
}

// read reads n bytes into b.mem, fewer with an error, io.EOF at the end.
func (c *copying) read(b *copyBuffer, off int64, n int) (int, error) {
	if !c.src.direct {
		return c.src.ReadAt(b.mem[:n], off)
	}
	skip := int(off % DirectAlign)
	want := (skip + n + DirectAlign - 1) / DirectAlign * DirectAlign
	if skip == 0 && want <= len(b.mem) {
		got, err := c.readDirect(b.mem[:want], off)
		return enough(got, n, err)
	}
	if b.bounce == nil {
		b.bounce = AlignedBuffer(c.o.BlockSize + 2*DirectAlign)
	}
	got, err := c.readDirect(b.bounce[:want], off-int64(skip))
	return enough(copy(b.mem[:n], b.bounce[min(skip, got):got]), n, err)
}

// enough returns the result of a read of n bytes when got bytes were read, which
// may be more than n.
func enough(got, n int, err error) (int, error) {
	switch {
	case got >= n:
		return n, nil
	case err == nil:
		err = io.EOF
	}
	return got, err
}

// readDirect reads until p is full or the file has ended: then nothing more comes,
// or the rest of a block cannot be read by itself.
func (c *copying) readDirect(p []byte, off int64) (n int, err error) {
	f := c.src
	if !f.lock.Acquire() {
		return 0, f.pathError("read", os.ErrClosed)
	}
	defer f.lock.Release()
	for n < len(p) && n%DirectAlign == 0 {
		m, err := f.transferDirect(reading, p[n:], off+int64(n))
		if m <= 0 || err != nil {
			return n, err
		}
		n += m
	}
	return f.readOn(p, off, n)
}

// transferDirect reads or writes once in any mode.
func (f *File) transferDirect(d direction, p []byte, off int64) (int, error) {
	if f.accelerated() {
		return f.transfer(context.Background(), d, p, off)
	}
	return f.plainCall(d, p, off)
}

// write writes once. It returns the number of bytes written also with an error.
func (c *copying) write(p []byte, off int64) (int, error) {
	f := c.dst
	if f.fd < 0 {
		return f.std().WriteAt(p, off)
	}
	if !f.lock.Acquire() {
		return 0, f.pathError("write", os.ErrClosed)
	}
	defer f.lock.Release()
	switch {
	case f.direct && !aligned(p, off):
		return c.writeAround(p, off)
	case f.direct:
		return f.transferDirect(writing, p, off)
	}
	return f.plainCall(writing, p, off)
}

// writeAround writes data that is not aligned for O_DIRECT: the whole blocks first,
// then the rest through the page cache.
func (c *copying) writeAround(p []byte, off int64) (int, error) {
	f := c.dst
	if n := len(p) / DirectAlign * DirectAlign; n > 0 && aligned(p[:n], off) {
		return f.transferDirect(writing, p[:n], off)
	}
	c.mu.Lock()
	if c.around == nil {
		fd, err := sys.Reopen(f.fd)
		if err != nil {
			c.mu.Unlock()
			return f.plainCall(writing, p, off) // some file systems allow it
		}
		c.around = fd
	}
	c.mu.Unlock()
	f.plain.Add(1)
	n, err := sys.Pwrite(c.around.Int(), p, off)
	if err != nil {
		err = f.pathError("write", err)
	}
	return n, err
}

// stream copies from or to something without offsets, until the source ends.
func (c *copying) stream() (int64, error) {
	if c.dst.seekable() != c.src.seekable() && !c.dst.mayAppend() {
		if handled, err := c.splice(); handled {
			return c.copied, err
		}
	}
	p := AlignedBuffer(c.o.BlockSize)
	for {
		if err := context.Cause(c.ctx); err != nil {
			return c.copied, err
		}
		n, err := c.src.std().Read(p)
		if n > 0 {
			n, writeErr := c.dst.std().Write(p[:n])
			c.reached(c.copied + int64(n))
			if writeErr != nil {
				return c.copied, writeErr
			}
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return c.copied, err
		}
	}
}

// splice moves pages between a pipe and a file. It returns false if it cannot and
// has copied nothing.
func (c *copying) splice() (handled bool, err error) {
	pipe, file := c.src, c.dst
	if c.src.seekable() {
		pipe, file = file, pipe
	}
	st, err := pipe.Stat()
	if err != nil || st.Mode()&fs.ModeNamedPipe == 0 || file.fd < 0 {
		return false, nil
	}
	conn, err := pipe.SyscallConn()
	if err != nil {
		return false, nil
	}
	off, err := file.std().Seek(0, io.SeekCurrent)
	if err != nil {
		return false, nil
	}
	wait := conn.Write
	if pipe == c.src {
		wait = conn.Read
	}
	for first := true; ; first = false { // the first error may be a sandbox's, of any number
		if err := context.Cause(c.ctx); err != nil {
			return true, c.move(file, off, err)
		}
		n, err := c.spliceOnce(wait, pipe, file, off+c.copied)
		var errno syscall.Errno
		if first && errors.As(err, &errno) {
			return false, nil // a plain call succeeds, or returns the error in the form of os.File
		}
		if err != nil || n == 0 {
			return true, c.move(file, off, err)
		}
		c.reached(c.copied + int64(n))
	}
}

// move sets the position of the file to the end of the copied range.
func (c *copying) move(file *File, off int64, err error) error {
	_, seekErr := file.std().Seek(off+c.copied, io.SeekStart)
	if err == nil {
		err = seekErr
	}
	return err
}

// spliceOnce moves some pages, after waiting for the pipe.
func (c *copying) spliceOnce(wait func(func(uintptr) bool) error, pipe, file *File, off int64) (n int, err error) {
	pollErr := wait(func(fd uintptr) bool {
		for {
			if n, err = c.spliceNow(int(fd), file, off); err != syscall.EAGAIN {
				break
			}
			if flags, _ := sys.OpenFlags(int(fd)); flags&syscall.O_NONBLOCK != 0 {
				err = nil
				return false // the netpoller waits
			}
			if err = sys.WaitPipe(int(fd), pipe == c.dst); err != nil {
				break
			}
		}
		if _, ok := err.(syscall.Errno); ok {
			err = c.dst.pathError("splice", err)
		}
		return true
	})
	switch {
	case errors.Is(pollErr, os.ErrDeadlineExceeded):
		err = pipe.pathError("splice", os.ErrDeadlineExceeded)
	case pollErr != nil:
		err = pipe.pathError("splice", os.ErrClosed)
	}
	return n, err
}

// spliceNow moves some pages. It does not wait for the pipe: Close of the file waits for
// spliceNow. The error is a bare errno, or describes that the file is closed.
func (c *copying) spliceNow(pipe int, file *File, off int64) (int, error) {
	if !file.lock.Acquire() {
		return 0, file.pathError("splice", os.ErrClosed)
	}
	defer file.lock.Release()
	if file == c.dst {
		return sys.Splice(file.fd, off, pipe, -1, copyPiece)
	}
	return sys.Splice(pipe, -1, file.fd, off, copyPiece)
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

// reached records that all bytes before off have been copied, and reports progress.
func (c *copying) reached(off int64) {
	if n := off - c.from; n > c.copied {
		c.copied = n
		if c.o.Progress != nil {
			c.o.Progress(n)
		}
	}
}
