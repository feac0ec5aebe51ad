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

// ReadAt reads len(p) bytes at an offset, like os.File.ReadAt. If it returns fewer bytes,
// it returns an error, io.EOF at the end of the file. p belongs to the call until it
// returns.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if f.hot(p, off) && f.readHot(p, off) {
		return len(p), nil
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

// readHot is a plain call. It reports whether it has read all of the data. If not, ReadAt reads again, and
// finds the end of the file or the error.
func (f *File) readHot(p []byte, off int64) bool {
	if !f.lock.Acquire() {
		return false
	}
	n, _ := sys.Pread(f.fd, p, off)
	f.lock.Release()
	return n > 0 && n == len(p)
}

// readFirst is the first ReadAt of a file about which nothing is known yet. It reports
// whether all of the data was in the page cache. Then nothing need be known, and a file
// that is opened for one read costs as much as with package os.
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

// accelerated reports whether positional calls may take another path than os.File's.
func (f *File) accelerated() bool { return f.seekable() && f.sys.opts.Mode != ModePlain }

// pread reads once, 0 at the end of the file.
func (f *File) pread(p []byte, off int64) (int, error) {
	if f.sys.opts.Mode == ModeAuto {
		return f.readAuto(p, off)
	}
	return f.transfer(reading, p, off)
}

// preadAny is pread for every mode.
func (f *File) preadAny(p []byte, off int64) (int, error) {
	if f.accelerated() {
		return f.pread(p, off)
	}
	return f.plainCall(reading, p, off)
}

// readAuto reads from the page cache what it holds. The rest is read through a ring
// if other operations are in flight there, otherwise by a plain call, which is then
// as fast.
func (f *File) readAuto(p []byte, off int64) (int, error) {
	if f.cachedSoFar(p) && plainIsFaster(f.fd, p, off) {
		if !asks(off) {
			return f.call(reading, p, off)
		}
		f.plain.Add(hotAsk - 1)
	}
	bulk := len(p) >= bulkMin && !f.direct
	ask := f.askCache()
	if bulk && ask {
		misses := f.misses.Load()
		ask = misses < bulkMisses || misses%bulkAsk == 0 || f.sys.bulk.Load() >= bulkPlain
	}
	if ask {
		n, ok := f.readCached(p, off)
		if n > 0 {
			if bulk {
				f.misses.Store(0)
			}
			return n, nil
		}
		if ok { // the end, unless this is Linux 5.9 or 5.10: see preadv2(2)
			return f.plainCall(reading, p, off)
		}
	}
	if f.route() != routeInline {
		return f.plainCall(reading, p, off)
	}
	if bulk {
		f.misses.Add(1)
		defer f.sys.bulk.Add(-1)
		if f.sys.bulk.Add(1) <= bulkPlain {
			return f.plainCall(reading, p, off)
		}
	}
	return f.transfer(reading, p, off)
}

// transfer reads or writes once, by a plain call when nothing else is in flight.
func (f *File) transfer(d direction, p []byte, off int64) (int, error) {
	r, turn, err := f.choose()
	switch {
	case err != nil:
		return 0, f.pathError(d.String(), err)
	case r == nil:
		defer turn.done()
		return f.plainCall(d, p, off)
	}
	return f.throughRing(context.Background(), r, d, p, off)
}

// WriteAt writes p at an offset, like os.File.WriteAt. With an error the count is 0, even
// if a part of p was written before, for example when the disk is full. p belongs to the
// call until it returns.
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
		m, err := f.transfer(writing, p[n:], off+int64(n))
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

// ReadAtContext is [File.ReadAt] with a context. It returns cached data at once and reads
// the rest through a ring. When ctx ends, the operation is cancelled, and the call waits
// for it. The caller may use p again when the call returns. A read that a disk has begun
// cannot be cancelled and ends with its result. In some cases plain system calls read
// instead, and ctx is checked only before each of them: without a ring, for files that
// the kernel cannot read without blocking, and for files that are neither regular nor
// block devices.
//
// If ctx ended the call, the error is an *fs.PathError that wraps context.Cause(ctx), and
// n is the number of bytes that were read before.
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

// WriteAtContext is [File.WriteAt] with a context, as in [File.ReadAtContext]. Except
// with ModeRing, buffered writes are plain system calls, and ctx is checked only before
// each of them. As in WriteAt, the count is 0 with an error, although a part may have
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
		m, err := f.transferContext(ctx, writing, p[n:], off+int64(n))
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
	return f.transferContext(ctx, reading, p, off)
}

// transferContext reads or writes once.
func (f *File) transferContext(ctx context.Context, d direction, p []byte, off int64) (int, error) {
	if err := f.ended(ctx, d.String()); err != nil {
		return 0, err
	}
	if !f.ringable() {
		return f.plainCall(d, p, off)
	}
	r, err := f.sys.reactor()
	if err != nil {
		return 0, f.pathError(d.String(), err)
	}
	if r == nil {
		return f.plainCall(d, p, off)
	}
	return f.throughRing(ctx, r, d, p, off)
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

// throughRing transfers p by an operation of a ring. Where the mode permits it, a plain
// call replaces an operation whose ring has failed before the kernel took the SQE.
func (f *File) throughRing(ctx context.Context, r *reactor.Reactor, d direction, p []byte, off int64) (int, error) {
	if !f.mayCall(d) {
		return f.plainCall(d, p, off)
	}
	f.ringed.Add(1)
	op := reactor.Op{Buf: p, Keep: f, Bytes: len(p)}
	if d == writing {
		op.SQE.Write(uring.Fd(f.fd), p, off)
	} else {
		op.SQE.Read(uring.Fd(f.fd), p, off)
	}
	f.submitAs(&op.SQE)
	n, failed, err := do(ctx, r, &op)
	switch {
	case err == nil:
		return n, nil
	case failed && f.fallsBack(r, err):
		return f.plainCall(d, p, off)
	}
	return 0, f.pathError(d.String(), err)
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
