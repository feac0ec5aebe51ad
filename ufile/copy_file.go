// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"io"
	"math"
	"os"
)

// ReadFrom copies from r, as os.File.ReadFrom: the kernel copies by itself from
// a File, an os.File, or a socket, also within an io.LimitedReader. Where one of
// two files has O_DIRECT, several blocks are under way at a time: see [Copy].
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

// overlaps says whether a copy is faster through the ring than by the kernel:
// where one of two regular files has O_DIRECT.
func (f *File) overlaps(src *File) bool {
	return f.std() != nil && src.std() != nil && (f.direct || src.direct) &&
		f.accelerated() && src.accelerated() && !f.appends
}

// readFromFile copies from a file with many blocks under way.
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

// WriteTo copies to w, as os.File.WriteTo: the kernel copies by itself to a
// File, an os.File, or a socket. A file with O_DIRECT is read ahead meanwhile;
// when w fails, the position is then behind the last byte that it took.
func (f *File) WriteTo(w io.Writer) (int64, error) {
	if f.std() == nil {
		return f.std().WriteTo(w)
	}
	switch to := w.(type) {
	case *File:
		return to.ReadFrom(f)
	case *os.File:
		if !f.direct || !f.accelerated() {
			return f.f.WriteTo(to)
		}
	}
	if !f.direct || !f.accelerated() {
		return f.f.WriteTo(w)
	}
	off, err := f.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return f.f.WriteTo(w)
	}
	r := NewReader(f, ReaderOptions{Offset: off})
	defer r.Close()
	n, err := r.WriteTo(w)
	if _, seekErr := f.f.Seek(off+n, io.SeekStart); err == nil {
		err = seekErr
	}
	return n, err
}
