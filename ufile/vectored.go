// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"io"
	"os"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// vectorMax is how many buffers one call of the kernel takes (IOV_MAX).
const vectorMax = 1024

// ReadvAt reads into several buffers, one after the other, starting at an offset. It
// usually makes one preadv2(2) call or submits one SQE. The choice between them and the
// errors are as in [File.ReadAt]. It returns how many bytes it read. If these are fewer
// than the buffers hold, it returns an error, io.EOF at the end of the file. The buffers
// belong to the call until it returns; the slice bufs is not changed. With O_DIRECT each
// buffer must be aligned. ReadvAt may be called concurrently.
func (f *File) ReadvAt(bufs [][]byte, off int64) (n int, err error) {
	return f.vectored(reading, bufs, off)
}

// WritevAt writes several buffers, one after the other, starting at an offset. It usually
// makes one pwritev2(2) call or submits one SQE. The choice between them and the errors
// are as in [File.WriteAt]. After an error n is the number of bytes that were written
// before it; WriteAt returns 0 then. The buffers belong to the call until it returns; the
// slice bufs is not changed. With O_DIRECT each buffer must be aligned. WritevAt may be
// called concurrently; if the ranges of two calls overlap, their data may be mixed.
func (f *File) WritevAt(bufs [][]byte, off int64) (n int, err error) {
	return f.vectored(writing, bufs, off)
}

// vectored makes one call for up to vectorMax buffers, and continues after a short transfer.
func (f *File) vectored(d direction, bufs [][]byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	// ReadAt and WriteAt make the calls that os.File refuses, or for which it has no single call.
	if len(bufs) <= 1 || off < 0 || !f.seekable() || d == writing && f.appends {
		return f.eachAt(d, bufs, off)
	}
	if !f.lock.Acquire() {
		return 0, f.pathError(d.String(), os.ErrClosed)
	}
	defer f.lock.Release()
	rest := advance(append(make([][]byte, 0, 16), bufs...), 0)
	for len(rest) > 0 {
		m, err := f.vector(d, rest[:min(len(rest), vectorMax)], off+int64(n))
		switch {
		case err != nil:
			return n, f.pathError(d.String(), err)
		case m == 0 && d == writing:
			return n, f.pathError(d.String(), io.ErrUnexpectedEOF)
		case m == 0:
			return n, io.EOF
		}
		n += m
		rest = advance(rest, m)
	}
	return n, nil
}

// eachAt transfers one buffer after the other.
func (f *File) eachAt(d direction, bufs [][]byte, off int64) (n int, err error) {
	for _, p := range bufs {
		var m int
		if d == writing {
			m, err = f.WriteAt(p, off+int64(n))
		} else {
			m, err = f.ReadAt(p, off+int64(n))
		}
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// advance drops the first n bytes of the buffers, and empty buffers before the next.
// It changes bufs.
func advance(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
}

// vector transfers once, 0 at the end of the file. The error is a bare errno, or
// describes the failure of a ring.
func (f *File) vector(d direction, bufs [][]byte, off int64) (int, error) {
	auto := f.sys.opts.Mode == ModeAuto
	if auto && d == reading && !f.direct && f.route() == routeInline {
		if n, errno := sys.PreadvNoWait(f.fd, bufs, cachedMax, off); errno == 0 && n > 0 {
			f.cached.Add(1)
			return n, nil
		}
	}
	buffered := auto && d == writing && !f.direct
	if buffered || f.sys.opts.Mode == ModePlain {
		return f.vectorPlain(d, bufs, off)
	}
	r, turn, err := f.choose(context.Background(), false)
	switch {
	case err != nil:
		return 0, err
	case r == nil:
		defer turn.done()
		return f.vectorPlain(d, bufs, off)
	case !f.mayCall(d):
		return f.vectorPlain(d, bufs, off)
	}
	n, failed, err := f.vectorRing(r, d, bufs, off)
	if failed && f.fallsBack(r, err) {
		return f.vectorPlain(d, bufs, off)
	}
	return n, err
}

func (f *File) vectorPlain(d direction, bufs [][]byte, off int64) (int, error) {
	f.plain.Add(1)
	if d == writing {
		return sys.Pwritev(f.fd, bufs, off)
	}
	return sys.Preadv(f.fd, bufs, off)
}

// vectorRing is do of a vectored transfer. The list of the buffers keeps them alive.
func (f *File) vectorRing(r *reactor.Reactor, d direction, bufs [][]byte, off int64) (n int, failed bool, err error) {
	f.ringed.Add(1)
	iov, bytes := make([]uring.Iovec, len(bufs)), 0
	for i, p := range bufs {
		iov[i] = uring.NewIovec(p)
		bytes += len(p)
	}
	var e uring.SQE
	if d == writing {
		e.Writev(uring.Fd(f.fd), iov, off, 0)
	} else {
		e.Readv(uring.Fd(f.fd), iov, off, 0)
	}
	f.submitAs(&e)
	keep := struct {
		f   *File
		iov []uring.Iovec
	}{f, iov}
	return do(context.Background(), r, &reactor.Op{SQE: e, Keep: keep, Bytes: bytes})
}
