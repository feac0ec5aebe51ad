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

// transfer reads or writes once.
func (f *File) transfer(ctx context.Context, d direction, p []byte, off int64) (int, error) {
	if ctx.Err() != nil {
		return 0, f.pathError(d.String(), context.Cause(ctx))
	}
	bulk := d == reading && len(p) >= bulkMin && !f.direct
	r, turn, err := f.choose(ctx, bulk)
	defer turn.done()
	switch {
	case err != nil:
		return 0, f.pathError(d.String(), err)
	case r != nil:
		return f.throughRing(ctx, r, d, p, off)
	case bulk && ctx.Done() != nil:
		p = p[:min(len(p), cachedMax)]
	}
	return f.plainCall(d, p, off)
}

// WriteAt writes p at an offset, like os.File.WriteAt. With an error the count is 0, even
// if a part of p was written before, for example when the disk is full. p belongs to the
// call until it returns.
func (f *File) WriteAt(p []byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	return f.writeAt(context.Background(), p, off)
}

// writeAt is WriteAt with a context that has not ended.
func (f *File) writeAt(ctx context.Context, p []byte, off int64) (n int, err error) {
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
		m, err := f.transfer(ctx, writing, p[n:], off+int64(n))
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
	return f.std().WriteAt(p, off)
}

// WriteAtContext is [File.WriteAt] with a context, as in [File.ReadAtContext]. Except
// with ModeRing, buffered writes are plain system calls, and ctx is checked only before
// each of them. As in WriteAt, the count is 0 with an error, although a part may have
// been written.
func (f *File) WriteAtContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	if err := f.ended(ctx, "write"); err != nil {
		return 0, err
	}
	return f.writeAt(ctx, p, off)
}

// ended returns an error if there is no file or ctx has ended.
func (f *File) ended(ctx context.Context, op string) error {
	if f.none() {
		return os.ErrInvalid
	}
	if ctx.Err() != nil {
		return f.pathError(op, context.Cause(ctx))
	}
	return nil
}

// direction is reading or writing.
type direction int

const (
	reading direction = iota
	writing
)

func directionOf(write bool) direction {
	if write {
		return writing
	}
	return reading
}

func (d direction) String() string {
	if d == writing {
		return "write"
	}
	return "read"
}

// call makes the plain system call.
func (d direction) call(fd int, p []byte, off int64) (int, error) {
	if d == writing {
		return sys.Pwrite(fd, p, off)
	}
	return sys.Pread(fd, p, off)
}

// plainCall transfers p by a plain system call.
func (f *File) plainCall(d direction, p []byte, off int64) (int, error) {
	f.plain.Add(1)
	return f.call(d, p, off)
}

// call is plainCall that is not counted.
func (f *File) call(d direction, p []byte, off int64) (int, error) {
	n, err := d.call(f.fd, p, off)
	if err != nil {
		return n, f.pathError(d.String(), err)
	}
	return n, nil
}

// beginBytes is for reads that their submission begins, with calls of the file system that take 10 µs and may
// wait: the submission enters the scheduler, see reactor.Op.
const beginBytes = 256<<10 + 1

// isCold reports whether the last smaller blocks were not cached.
func (f *File) isCold() bool { return f.cold.Load() >= coldMisses }

// throughRing transfers p by an operation of a ring. Where the mode permits it, a plain
// call replaces an operation whose ring has failed before the kernel took the SQE.
func (f *File) throughRing(ctx context.Context, r *reactor.Reactor, d direction, p []byte, off int64) (int, error) {
	if !f.mayCall(d) {
		return f.plainCall(d, p, off)
	}
	op := reactor.Op{Buf: p, Keep: f}
	fixed := f.fill(&op, r, d, off)
	n, failed, err := do(ctx, r, &op)
	if fixed && errors.Is(err, syscall.EFAULT) && !errors.Is(err, reactor.ErrFailed) { // the Buffers were closed meanwhile
		f.fill(&op, nil, d, off)
		n, failed, err = do(ctx, r, &op)
	}
	switch {
	case err == nil:
		return n, nil
	case failed && f.fallsBack(r, err):
		return f.plainCall(d, p, off)
	}
	return 0, f.pathError(d.String(), err)
}

// fixedBytes stands for the work of submitting a transfer whose memory is registered: the kernel pins
// no pages, so its size does not matter.
const fixedBytes = 4096

// fill fills the SQE of a transfer of op.Buf, and reports whether it uses the registration of that
// memory with the rings. Buffered transfers copy, so that they gain nothing by one.
func (f *File) fill(op *reactor.Op, r *reactor.Reactor, d direction, off int64) (fixed bool) {
	op.Bytes = len(op.Buf)
	var index uint16
	if f.direct && f.route() == routeInline {
		index, fixed = f.sys.registeredIndex(r, op.Buf)
	}
	switch fd := uring.Fd(f.fd); {
	case fixed && d == writing:
		op.SQE.WriteFixed(fd, op.Buf, off, index)
	case fixed:
		op.SQE.ReadFixed(fd, op.Buf, off, index)
	case d == writing:
		op.SQE.Write(fd, op.Buf, off)
	default:
		op.SQE.Read(fd, op.Buf, off)
	}
	switch {
	case fixed:
		op.Bytes = min(op.Bytes, fixedBytes)
		f.fixed.Add(1)
		return true
	case d == reading && !f.direct && f.isCold():
		op.Bytes = max(op.Bytes, beginBytes)
	}
	f.ringed.Add(1)
	f.submitAs(&op.SQE)
	return false
}

// mayCall reports whether pread(2) or pwrite(2) is allowed, which a ring does not check.
// Some files of tracefs claim to be regular and cannot be read in this way. Sequential
// files, such as files of /proc, cannot be written in this way.
func (f *File) mayCall(d direction) bool {
	if f.allowed[d].Load() {
		return true
	}
	_, err := d.call(f.fd, nil, 0)
	f.allowed[d].Store(err == nil)
	return err == nil
}

// do carries out a transfer. It retries on EINTR, and once on EAGAIN with IOSQE_ASYNC.
// The error is an errno, the cause of ctx, or, with failed, describes the failure of the
// ring.
func do(ctx context.Context, r *reactor.Reactor, op *reactor.Op) (n int, failed bool, err error) {
	for async := false; ; {
		res := r.DoContext(ctx, op)
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

// fallsBack reports whether a plain call is to replace an operation because its ring
// has failed before the kernel took the SQE. An operation that the kernel has taken ends
// with the error: its buffer must not be used again, and a repeated write could overtake
// later ones.
func (f *File) fallsBack(r *reactor.Reactor, err error) bool {
	if f.sys.opts.Mode != ModeAuto {
		return false
	}
	if errors.Is(err, reactor.ErrNoWorkers) {
		f.sys.pause(err)
		return true
	}
	f.sys.giveUp(r, err)
	return !errors.Is(err, reactor.ErrTaken)
}

// aligned reports whether O_DIRECT accepts a transfer on every device.
func aligned(buf []byte, off int64) bool {
	return off%DirectAlign == 0 && len(buf)%DirectAlign == 0 && sys.Aligned(buf, DirectAlign)
}
