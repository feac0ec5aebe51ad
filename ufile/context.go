// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// ReadAtContext is [File.ReadAt] that ctx can end. What the page cache holds is
// read at once; the rest goes through a ring, to which the end of ctx is passed
// on, and then the operation is waited for: p is the caller's when the call
// returns, always. A read that a disk has begun cannot be stopped and ends with
// its own result. Where there is no ring, ctx is looked at before each system
// call, and a call that has started is waited for; so it is for files that
// are neither regular nor a block device.
//
// An end by ctx is an *fs.PathError that wraps context.Cause(ctx); the bytes
// that were read before it are counted.
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

// WriteAtContext is [File.WriteAt] that ctx can end, under the rules of
// [File.ReadAtContext]; buffered writes, unless with ModeRing, are plain system
// calls, before which ctx is looked at. As in WriteAt the count is 0 with an
// error, although a part may have been written.
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

// ended says whether there is a file, and ctx has not ended.
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

// doContext is do that ctx can end; failed says that the ring is to blame for
// the error.
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
