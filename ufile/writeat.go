// SPDX-License-Identifier: MIT

package ufile

import (
	"io"
	"os"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// WriteAt writes p at an offset, as os.File.WriteAt: with an error the count is
// 0, even where a part of p was written before it, as when the disk is full. p
// is the operation's until it returns.
func (f *File) WriteAt(p []byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	// Through a ring, ext4 and others hand buffered writes to worker threads.
	if !f.accelerated() || f.appends || !f.direct && f.sys.opts.Mode == ModeAuto {
		return f.writeAtOS(p, off)
	}
	if off < 0 {
		return 0, f.pathError("writeat", errNegative)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !f.lock.Acquire() {
		return 0, f.pathError("write", os.ErrClosed)
	}
	defer f.lock.Release()
	for n < len(p) {
		m, err := f.pwrite(p[n:], off+int64(n))
		if err != nil {
			return 0, err // os.File.WriteAt keeps to itself what it wrote before an error
		}
		if m == 0 {
			return 0, f.pathError("write", io.ErrUnexpectedEOF)
		}
		n += m
	}
	return n, nil
}

// writeAtOS is WriteAt of the os.File, under the lock as in readAtOS.
func (f *File) writeAtOS(p []byte, off int64) (int, error) {
	f.plain.Add(1)
	if f.seekable() && !f.appends && off >= 0 && len(p) > 0 {
		if !f.lock.Acquire() {
			return 0, f.pathError("write", os.ErrClosed)
		}
		defer f.lock.Release()
	}
	return f.f.WriteAt(p, off)
}

// pwrite writes once, by a plain call when nothing else is in flight.
func (f *File) pwrite(p []byte, off int64) (int, error) {
	if !f.ringable() {
		return f.writePlain(p, off)
	}
	if f.sys.opts.Mode == ModeAuto && f.sys.tryAlone() {
		defer f.sys.alone.Store(false)
		return f.writePlain(p, off)
	}
	r, err := f.sys.reactor()
	if err != nil {
		return 0, f.pathError("write", err)
	}
	if r == nil {
		return f.writePlain(p, off)
	}
	if f.sys.opts.Mode == ModeAuto {
		if turn, plain := r.TryPlain(); plain {
			defer turn.Done()
			return f.writePlain(p, off)
		}
	}
	return f.writeRing(r, p, off)
}

func (f *File) writePlain(p []byte, off int64) (int, error) {
	f.plain.Add(1)
	n, err := sys.Pwrite(f.fd, p, off)
	if err != nil {
		return n, f.pathError("write", err)
	}
	return n, nil
}

func (f *File) writeRing(r *reactor.Reactor, p []byte, off int64) (int, error) {
	if !f.mayWrite() {
		return f.writePlain(p, off)
	}
	f.ringed.Add(1)
	var e uring.SQE
	e.Write(uring.Fd(f.fd), p, off)
	f.submitAs(&e)
	n, err := f.do(r, &e, p)
	switch {
	case err == nil:
		return n, nil
	case f.fallsBack(r, err):
		return f.writePlain(p, off)
	}
	return 0, f.pathError("write", err)
}

// mayWrite says whether pwrite(2) is allowed, which the kernel denies to
// sequential files such as those of /proc: see mayRead.
func (f *File) mayWrite() bool {
	if f.writes.Load() {
		return true
	}
	_, err := sys.Pwrite(f.fd, nil, 0)
	f.writes.Store(err == nil)
	return err == nil
}
