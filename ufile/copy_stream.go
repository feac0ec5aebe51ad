// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// stream copies from or to something without offsets, until the source ends.
func (c *copying) stream() (int64, error) {
	if c.dst.seekable() != c.src.seekable() && !c.dst.appends {
		if handled, err := c.splice(); handled {
			return c.copied, err
		}
	}
	p := AlignedBuffer(c.o.BlockSize)
	for {
		if err := context.Cause(c.ctx); err != nil {
			return c.copied, err
		}
		n, err := c.src.f.Read(p)
		if n > 0 {
			n, writeErr := c.dst.f.Write(p[:n])
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

// splice moves pages between a pipe and a file; false means that it cannot, and
// that nothing has been copied.
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
	off, err := file.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return false, nil
	}
	wait := conn.Write
	if pipe == c.src {
		wait = conn.Read
	}
	for first := true; ; first = false {
		if err := context.Cause(c.ctx); err != nil {
			return true, c.move(file, off, err)
		}
		n, err := c.spliceOnce(wait, pipe, file, off+c.copied)
		if err != nil && first && (errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS)) {
			return false, nil
		}
		if err != nil || n == 0 {
			return true, c.move(file, off, err)
		}
		c.reached(c.copied + int64(n))
	}
}

// move sets the position of the file to where the copy has come.
func (c *copying) move(file *File, off int64, err error) error {
	_, seekErr := file.f.Seek(off+c.copied, io.SeekStart)
	if err == nil {
		err = seekErr
	}
	return err
}

// spliceOnce moves some pages, after waiting for the pipe.
func (c *copying) spliceOnce(wait func(func(uintptr) bool) error, pipe, file *File, off int64) (n int, err error) {
	pollErr := wait(func(fd uintptr) bool {
		if !file.lock.Acquire() {
			err = file.pathError("splice", os.ErrClosed)
			return true
		}
		defer file.lock.Release()
		flags, _ := sys.OpenFlags(int(fd))
		nonblock := flags&syscall.O_NONBLOCK != 0
		var errno error
		if pipe == c.src {
			n, errno = sys.Splice(file.fd, off, int(fd), -1, copyPiece, nonblock)
		} else {
			n, errno = sys.Splice(int(fd), -1, file.fd, off, copyPiece, nonblock)
		}
		if errno == syscall.EAGAIN && nonblock {
			return false
		}
		if errno != nil {
			err = c.dst.pathError("splice", errno)
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
