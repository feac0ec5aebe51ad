// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// errNegative is the error of os for a negative offset.
var errNegative = errors.New("negative offset")

// ReadAt reads len(p) bytes at an offset, as os.File.ReadAt. If it returns fewer
// bytes it returns an error, io.EOF at the end of the file. p belongs to the call
// until it returns.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if fileKind(f.kind.Load()) == kindUnknown && f.readFirst(p, off) {
		return len(p), nil
	}
	if !f.accelerated() {
		return f.readAtOS(p, off)
	}
	if off < 0 {
		return 0, f.pathError("readat", errNegative)
	}
	if len(p) == 0 { // as os.File, also after Close
		return 0, nil
	}
	if !f.lock.Acquire() {
		return 0, f.pathError("read", os.ErrClosed)
	}
	defer f.lock.Release()
	for n < len(p) {
		m, err := f.pread(p[n:], off+int64(n))
		if err != nil {
			return n, err
		}
		if m == 0 {
			return n, io.EOF
		}
		n += m
	}
	return n, nil
}

// readFirst is the first ReadAt of a file of which nothing is known yet. It reports
// whether all of it was in the page cache: then nothing need be known, and a file
// that is opened for one read costs what it costs with os.
func (f *File) readFirst(p []byte, off int64) bool {
	if f.sys.opts.Mode != ModeAuto || f.direct || off < 0 || len(p) == 0 || len(p) > cachedMax || !f.lock.Acquire() {
		return false
	}
	defer f.lock.Release()
	if !f.first.CompareAndSwap(false, true) {
		return false
	}
	n, _ := f.readCached(p, off)
	if 0 < n && n < len(p) {
		f.cached.Add(^uint64(0)) // it is read again, and counted then
	}
	return n == len(p)
}

// readAtOS is ReadAt of the os.File. For regular files and block devices the lock
// makes Close wait for the call, which Close of an os.File does not.
func (f *File) readAtOS(p []byte, off int64) (int, error) {
	f.plain.Add(1)
	if f.seekable() && off >= 0 && len(p) > 0 {
		if !f.lock.Acquire() {
			return 0, f.pathError("read", os.ErrClosed)
		}
		defer f.lock.Release()
	}
	return f.f.ReadAt(p, off)
}

// accelerated reports whether positional calls may take another path than those of
// os.File.
func (f *File) accelerated() bool { return f.seekable() && f.sys.opts.Mode != ModePlain }

// pread reads once, 0 at the end of the file.
func (f *File) pread(p []byte, off int64) (int, error) {
	switch {
	case f.sys.opts.Mode == ModeAuto:
		return f.readAuto(p, off)
	case !f.ringable():
		return f.readPlain(p, off)
	}
	r, err := f.sys.reactor()
	if err != nil {
		return 0, f.pathError("read", err)
	}
	return f.readRing(r, p, off)
}

func (f *File) readPlain(p []byte, off int64) (int, error) {
	f.plain.Add(1)
	n, err := sys.Pread(f.fd, p, off)
	if err != nil {
		return n, f.pathError("read", err)
	}
	return n, nil
}

func (f *File) readRing(r *reactor.Reactor, p []byte, off int64) (int, error) {
	if !f.mayRead() {
		return f.readPlain(p, off)
	}
	f.ringed.Add(1)
	var e uring.SQE
	e.Read(uring.Fd(f.fd), p, off)
	f.submitAs(&e)
	n, err := f.do(r, &e, p)
	switch {
	case err == nil:
		return n, nil
	case f.fallsBack(r, err):
		return f.readPlain(p, off)
	}
	return 0, f.pathError("read", err)
}

// mayRead reports whether pread(2) is allowed. It is not for some files of tracefs,
// although they claim to be regular, and a ring does not check it.
func (f *File) mayRead() bool {
	if f.reads.Load() {
		return true
	}
	_, err := sys.Pread(f.fd, nil, 0)
	f.reads.Store(err == nil)
	return err == nil
}

// do runs a transfer of p. It retries on EINTR, and once on EAGAIN with
// IOSQE_ASYNC. The error is an errno, or describes the failure of the ring.
func (f *File) do(r *reactor.Reactor, e *uring.SQE, p []byte) (int, error) {
	op := reactor.Op{SQE: *e, Buf: p, Keep: f, Bytes: len(p)}
	for async := false; ; {
		res := r.Do(&op)
		if res.Cause != nil {
			return 0, res.Cause
		}
		switch errno := res.Errno(); {
		case errno == 0:
			return int(res.Res), nil
		case errno == syscall.EAGAIN && !async: // the kernel could not even wait for it
			async = true
			op.SQE.SetFlags(uring.SQEAsync)
		case errno != syscall.EINTR:
			return 0, errno
		}
	}
}

// fallsBack reports whether a plain call is to replace an operation because its ring
// has failed before the kernel took the entry. An operation that the kernel has
// taken ends with the error: its buffer must not be used again, and a repeated write
// could overtake later ones.
func (f *File) fallsBack(r *reactor.Reactor, err error) bool {
	if _, ok := err.(syscall.Errno); ok || f.sys.opts.Mode != ModeAuto {
		return false
	}
	f.sys.giveUp(r, err)
	return !errors.Is(err, reactor.ErrTaken)
}

// WriteAt writes p at an offset, as os.File.WriteAt. With an error the count is 0,
// also if a part of p was written before, as when the disk is full. p belongs to
// the call until it returns.
func (f *File) WriteAt(p []byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	// Through a ring, ext4 and others pass buffered writes to worker threads.
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
			return 0, err // as os.File.WriteAt, which does not count a part
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

// mayWrite reports whether pwrite(2) is allowed. It is not for sequential files such
// as those of /proc; see mayRead.
func (f *File) mayWrite() bool {
	if f.writes.Load() {
		return true
	}
	_, err := sys.Pwrite(f.fd, nil, 0)
	f.writes.Store(err == nil)
	return err == nil
}

// ReadAtContext is [File.ReadAt] that ctx can end. Cached data is read at once. The
// rest goes through a ring. When ctx ends, the operation is cancelled and waited
// for, so that p always is the caller's when the call returns. A read that a disk
// has begun cannot be stopped and ends with its own result. Without a ring, for
// files that the kernel cannot read without blocking, and for files that are
// neither regular nor block devices, ctx is checked before each system call, and a
// call that has started is waited for.
//
// If ctx ended the call, the error is an *fs.PathError that wraps
// context.Cause(ctx). Bytes that were read before are counted.
func (f *File) ReadAtContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	if err := f.ended(ctx, "read"); err != nil {
		return 0, err
	}
	if ctx.Done() == nil || !f.accelerated() || off < 0 || len(p) == 0 {
		return f.ReadAt(p, off)
	}
	if !f.lock.Acquire() {
		return 0, f.pathError("read", os.ErrClosed)
	}
	defer f.lock.Release()
	for n < len(p) {
		m, err := f.preadContext(ctx, p[n:], off+int64(n))
		if err != nil {
			return n, err
		}
		if m == 0 {
			return n, io.EOF
		}
		n += m
	}
	return n, nil
}

// WriteAtContext is [File.WriteAt] that ctx can end, as in [File.ReadAtContext].
// Except with ModeRing, buffered writes are plain system calls, and ctx is checked
// before each. As in WriteAt the count is 0 with an error, although a part may have
// been written.
func (f *File) WriteAtContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	if err := f.ended(ctx, "write"); err != nil {
		return 0, err
	}
	plain := !f.accelerated() || f.appends || !f.direct && f.sys.opts.Mode == ModeAuto
	if ctx.Done() == nil || plain || off < 0 || len(p) == 0 {
		return f.WriteAt(p, off)
	}
	if !f.lock.Acquire() {
		return 0, f.pathError("write", os.ErrClosed)
	}
	defer f.lock.Release()
	for n < len(p) {
		m, err := f.pwriteContext(ctx, p[n:], off+int64(n))
		if err != nil {
			return 0, err
		}
		if m == 0 {
			return 0, f.pathError("write", io.ErrUnexpectedEOF)
		}
		n += m
	}
	return n, nil
}

// ended returns an error if there is no file or ctx has ended.
func (f *File) ended(ctx context.Context, op string) error {
	if f.std() == nil {
		return os.ErrInvalid
	}
	if ctx.Err() != nil {
		return f.pathError(op, context.Cause(ctx))
	}
	return nil
}

// preadContext reads once, 0 at the end of the file.
func (f *File) preadContext(ctx context.Context, p []byte, off int64) (int, error) {
	if f.sys.opts.Mode == ModeAuto && f.askCache() {
		if n, _ := f.readCached(p, off); n > 0 {
			return n, nil
		}
	}
	if err := f.ended(ctx, "read"); err != nil {
		return 0, err
	}
	if !f.ringable() {
		return f.readPlain(p, off)
	}
	r, err := f.sys.reactor()
	if err != nil {
		return 0, f.pathError("read", err)
	}
	if r == nil || !f.mayRead() {
		return f.readPlain(p, off)
	}
	f.ringed.Add(1)
	var e uring.SQE
	e.Read(uring.Fd(f.fd), p, off)
	f.submitAs(&e)
	n, failed, err := f.doContext(ctx, r, &e, p)
	switch {
	case err == nil:
		return n, nil
	case failed && f.fallsBack(r, err):
		return f.readPlain(p, off)
	}
	return 0, f.pathError("read", err)
}

// pwriteContext writes once.
func (f *File) pwriteContext(ctx context.Context, p []byte, off int64) (int, error) {
	if err := f.ended(ctx, "write"); err != nil {
		return 0, err
	}
	if !f.ringable() {
		return f.writePlain(p, off)
	}
	r, err := f.sys.reactor()
	if err != nil {
		return 0, f.pathError("write", err)
	}
	if r == nil || !f.mayWrite() {
		return f.writePlain(p, off)
	}
	f.ringed.Add(1)
	var e uring.SQE
	e.Write(uring.Fd(f.fd), p, off)
	f.submitAs(&e)
	n, failed, err := f.doContext(ctx, r, &e, p)
	switch {
	case err == nil:
		return n, nil
	case failed && f.fallsBack(r, err):
		return f.writePlain(p, off)
	}
	return 0, f.pathError("write", err)
}

// doContext is do that ctx can end. failed reports that the ring has failed.
func (f *File) doContext(ctx context.Context, r *reactor.Reactor, e *uring.SQE, p []byte) (n int, failed bool, err error) {
	op := reactor.Op{SQE: *e, Buf: p, Keep: f, Bytes: len(p)}
	for async := false; ; {
		res := r.DoContext(ctx, &op)
		if res.Cause != nil {
			failed = errors.Is(res.Cause, reactor.ErrFailed) || errors.Is(res.Cause, reactor.ErrClosed) || ctx.Err() == nil
			return 0, failed, res.Cause
		}
		switch errno := res.Errno(); {
		case errno == 0:
			return int(res.Res), false, nil
		case ctx.Err() != nil && (errno == syscall.EAGAIN || errno == syscall.EINTR):
			return 0, false, context.Cause(ctx)
		case errno == syscall.EAGAIN && !async: // the kernel could not even wait for it
			async = true
			op.SQE.SetFlags(uring.SQEAsync)
		case errno != syscall.EINTR:
			return 0, false, errno
		}
	}
}
