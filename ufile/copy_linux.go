// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// sparse copies the data of a file and makes holes where it has holes. size is the size
// of dst.
func (c *copying) sparse(st fs.FileInfo, size, to int64) (err error) {
	holes := c.holes(st)
	if holes == nil {
		return c.data(c.from, to, c.o.Blocks)
	}
	defer holes.Close()
	for pos := c.from; pos < to; {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		start, end, err := c.nextData(holes, pos, to)
		if err != nil {
			return err
		}
		if err := c.hole(pos, start, size); err != nil {
			return err
		}
		if start < end {
			if err := c.data(start, end, c.o.Blocks); err != nil {
				return err
			}
		}
		pos = end
	}
	return nil
}

// holes returns a descriptor of the source whose position may be moved. It returns nil if
// the source has no holes, they cannot be found, or the source may not be read: then the
// first read returns the error.
func (c *copying) holes(st fs.FileInfo) *sys.FD {
	raw, ok := st.Sys().(*syscall.Stat_t)
	if !ok || raw.Blocks*512 >= st.Size() {
		return nil
	}
	var fd *sys.FD
	_, _ = c.hold(func(_, src int) (int, error) {
		if !c.src.mayCall(reading) {
			return 0, nil
		}
		var err error
		fd, err = sys.Reopen(src)
		return 0, err
	})
	return fd
}

// nextData returns the offsets at which the next data begins and ends. Both are to if
// there is no more data.
func (c *copying) nextData(holes *sys.FD, pos, to int64) (start, end int64, err error) {
	start, end, err = sys.NextData(holes.Int(), pos)
	switch {
	case err == nil:
		return min(start, to), min(end, to), nil
	case err != syscall.ENXIO: // all is data as far as the file system tells
		return pos, to, nil
	}
	st, err := c.src.Stat()
	if err == nil && st.Size() < to { // it has shrunk
		if to = st.Size(); to <= pos {
			err = io.EOF
		}
	}
	return to, to, err
}

// hole makes a hole, or zeros, of what of a range lies in dst, which had that size, and
// lets dst grow by the rest. What does not succeed so is written, as os.File does.
func (c *copying) hole(from, to, size int64) error {
	inside := max(from, min(to, size-c.delta))
	if from < inside {
		_, err := c.hold(func(dst, _ int) (int, error) {
			return 0, sys.PunchHole(dst, from+c.delta, inside-from)
		})
		if err != nil {
			if err := c.zeros(from, inside); err != nil {
				return err
			}
		}
	}
	if inside < to && c.grow(to) != nil {
		return c.zeros(inside, to)
	}
	c.reached(max(from, to))
	return nil
}

// zeros writes zeros.
func (c *copying) zeros(from, to int64) error {
	p := AlignedBuffer(c.o.BlockSize)
	for from < to {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		off := from + c.delta
		n := int(min(int64(len(p))-off%int64(len(p)), to-from))
		m, err := c.write(p[:n], off)
		from += int64(m)
		c.reached(from)
		if err != nil {
			return err
		}
	}
	return nil
}

// grow lets dst reach as far as an offset of the source.
func (c *copying) grow(to int64) error {
	st, err := c.dst.Stat()
	if err == nil && st.Size() < to+c.delta {
		err = c.dst.Truncate(to + c.delta)
	}
	return err
}

// borrowOS makes a File from a duplicate descriptor, which shares the position and stays
// open after a Close of the original. A pipe, or another file without offsets, is used
// through the os.File itself, so that its deadlines and its Close end a wait.
func borrowOS(f *os.File) (*File, func(), error) {
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if kind := st.Mode() & (fs.ModeType &^ fs.ModeDevice); kind != 0 { // not a regular file or block device
		lent, err := defaultSystem().newFile(f)
		if err != nil {
			return nil, nil, err
		}
		if flags, err := sys.OpenFlags(lent.fd); err == nil {
			lent.setFlags(flags)
		}
		lent.kind.Store(uint32(kindOther))
		lent.fd, lent.direct = -1, false
		return lent, func() {}, nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	dup := -1
	var dupErr error
	if err := conn.Control(func(fd uintptr) { dup, dupErr = sys.Dup(int(fd)) }); err != nil {
		return nil, nil, err
	}
	if dupErr != nil {
		return nil, nil, &os.PathError{Op: "dup", Path: f.Name(), Err: dupErr}
	}
	u, err := NewFile(os.NewFile(uintptr(dup), f.Name()))
	if err != nil {
		return nil, nil, err
	}
	return u, func() { u.Close() }, nil
}
