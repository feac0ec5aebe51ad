// SPDX-License-Identifier: MIT

package fileserver

import (
	"errors"
	"io"

	"github.com/ringside-io/ringside/ufile"
)

// content is what http.ServeContent serves: a file, of which it needs the position only, or bytes.
// The position is ours, so that moving it takes no system call.
type content struct {
	file *ufile.File
	data []byte // if file is nil
	size int64
	pos  int64
}

var errSeek = errors.New("seek before the beginning")

// Seek implements io.Seeker.
func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.pos
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return 0, errSeek
	}
	c.pos = offset
	return offset, nil
}

// Read implements io.Reader, for the parts of several ranges and for guessing a type.
func (c *content) Read(p []byte) (int, error) {
	n, err := c.readAt(p, c.pos)
	c.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// readAt is io.ReaderAt's, within the size.
func (c *content) readAt(p []byte, off int64) (int, error) {
	if off >= c.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), c.size-off)]
	if c.file == nil {
		return copy(p, c.data[off:]), nil
	}
	return c.file.ReadAt(p, off)
}
