// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// ReadAt reads len(p) bytes at an offset, like os.File.ReadAt. If it returns fewer bytes,
// it returns an error, io.EOF at the end of the file. p belongs to the call until it
// returns.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	return f.readAt(context.Background(), p, off)
}

// ReadAtContext is [File.ReadAt] with a context. It returns cached data at once and reads
// the rest through a ring. When ctx ends, the operation is cancelled, and the call waits
// for it. The caller may use p again when the call returns. A read that a disk has begun
// cannot be cancelled and ends with its result. In some cases plain system calls read
// instead, and ctx is checked only before each of them: without a ring, for files that
// the kernel cannot read without blocking, for files that are neither regular nor
// block devices, for files whose data was cached so far, and for blocks of 32 KiB and more
// that are not cached, in parts of at most 256 KiB.
//
// If ctx ended the call, the error is an *fs.PathError that wraps context.Cause(ctx), and
// n is the number of bytes that were read before.
func (f *File) ReadAtContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	if err := f.ended(ctx, "read"); err != nil {
		return 0, err
	}
	return f.readAt(ctx, p, off)
}

// readAt reads by the way that decide names. A read that ends early continues by what decide names
// for the rest.
func (f *File) readAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	way := f.decide(p, off)
	if way == wayFirst {
		if n, err = f.readFirst(ctx, p, off); n == len(p) || err != nil {
			return n, err
		}
		way = f.decide(p[n:], off+int64(n))
	}
	switch {
	case way == wayHot && f.readHot(p, off):
		return len(p), nil
	case way == wayOS:
		return f.readAtOS(p, off)
	}
	if !f.lock.Acquire() {
		return n, f.pathError("read", os.ErrClosed)
	}
	defer f.lock.Release()
	for {
		m, rest, at := 0, p[n:], off+int64(n)
		switch way {
		case wayHot:
			m, err = f.call(reading, rest, at)
		case wayCache:
			if m, err = f.readAsked(rest, at); err == errNotCached {
				way = wayDisk
				continue
			}
		default:
			m, err = f.transfer(ctx, reading, rest, at)
		}
		switch {
		case err != nil:
			return n, err
		case m == 0:
			return n, io.EOF
		}
		if n += m; n == len(p) {
			return n, nil
		}
		way = f.decide(p[n:], off+int64(n))
	}
}

// way is how a read reaches the kernel.
type way uint8

const (
	// wayOS: os.File reads. The file is neither regular nor a block device, the mode is ModePlain, or
	// there is nothing to read.
	wayOS way = iota
	// wayFirst: the page cache is asked, before anything is known about the file.
	wayFirst
	// wayHot: a plain call. The file was cached so far, and a plain call is faster than to ask.
	wayHot
	// wayCache: the page cache is asked. What it does not have is read as by wayDisk.
	wayCache
	// wayDisk: a ring, or a plain call where that is as fast.
	wayDisk
)

// decide names the way of a read.
func (f *File) decide(p []byte, off int64) way {
	auto := f.sys.opts.Mode == ModeAuto
	switch {
	case auto && f.cachedSoFar(p) && hotCall.Load() == callPlain && !asks(off):
		return wayHot
	case auto && f.nothingKnown(p, off):
		return wayFirst
	case !f.accelerated() || off < 0 || len(p) == 0:
		return wayOS
	case auto && f.askCache() && f.asksCache(p):
		return wayCache
	}
	return wayDisk
}

// readHot is a plain call that is not counted: goroutines that read one file would wait for the
// counter. Those that ask the cache count it, for hotAsk calls each. It reports whether it has read
// all of the data. If not, ReadAt reads again, and finds the end of the file or the error.
func (f *File) readHot(p []byte, off int64) bool {
	if !f.lock.Acquire() {
		return false
	}
	n, _ := sys.Pread(f.fd, p, off)
	f.lock.Release()
	return n > 0 && n == len(p)
}

// nothingKnown reports whether a read may be the first one of a file about which nothing is known.
func (f *File) nothingKnown(p []byte, off int64) bool {
	return fileKind(f.kind.Load()) == kindUnknown && !f.first.Load() &&
		off >= 0 && 0 < len(p) && len(p) <= cachedMax
}

// readFirst reads what the page cache has. If that is all, or all up to the end of the file, nothing
// need be known: a file that is opened for one read costs as much as with package os. The only error
// without O_DIRECT is io.EOF: the caller reads the rest, and finds others.
func (f *File) readFirst(ctx context.Context, p []byte, off int64) (int, error) {
	if !f.lock.Acquire() {
		return 0, nil
	}
	defer f.lock.Release()
	if !f.first.CompareAndSwap(false, true) {
		return 0, nil
	}
	if f.direct {
		return f.readFirstDirect(ctx, p, off)
	}
	n, _ := f.readCached(p, off)
	switch {
	case n <= 0 || n == len(p):
		return max(n, 0), nil
	case f.lazy && endsAt(off+int64(n)): // lazy: a regular file
		return n, io.EOF
	}
	f.plain.Add(1)
	if m, err := sys.Pread(f.fd, p[n:], off+int64(n)); m > 0 || err != nil {
		return n + max(m, 0), nil
	}
	return n, io.EOF
}

// readFirstDirect is readFirst with O_DIRECT: a plain call, which is as fast as a ring if no other
// operation is in flight. Its error is that of the read: a second call might have another.
func (f *File) readFirstDirect(ctx context.Context, p []byte, off int64) (int, error) {
	if ctx.Done() != nil || !f.sys.tryAlone() {
		return 0, nil
	}
	defer turn{alone: f.sys}.done()
	n, err := f.plainCall(reading, p, off)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
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
	return f.std().ReadAt(p, off)
}

// errNotCached tells that another way must be tried.
var errNotCached = errors.New("not cached")

// readAsked reads once from the page cache, 0 at the end of the file.
func (f *File) readAsked(p []byte, off int64) (int, error) {
	n, ok := f.readCached(p, off)
	switch {
	case n > 0:
		f.wasCached(p, off)
		return n, nil
	case ok: // the end, unless this is Linux 5.9 or 5.10: see preadv2(2)
		return f.plainCall(reading, p, off)
	}
	return 0, errNotCached
}

// cachedMax is how many bytes a raw call copies at most from the page cache. The
// copy takes about 50 µs, in which the P cannot be taken away.
const cachedMax = 256 << 10

// Large blocks that are not cached are read by plain calls, until bulkPlain of them
// are in flight and keep the disk busy: through a ring, few threads would do the
// copying. After bulkMisses blocks that were not cached, only one block in bulkAsk
// is looked up in the page cache.
const (
	bulkMin    = 32 << 10
	bulkPlain  = 16
	bulkMisses = 4
	bulkAsk    = 8
)

// Smaller blocks are looked up in the page cache until coldMisses in succession were not there. Then one in
// coldAsk is: for a block that is not cached, the question begins the read, alone, where the submission of a
// ring begins many together.
const (
	coldMisses = 16
	coldAsk    = 64
)

// asksCache reports whether a block is looked up in the page cache.
func (f *File) asksCache(p []byte) bool {
	switch {
	case len(p) >= bulkMin:
		return f.asksBulk()
	case !f.isCold():
		return true
	}
	return f.cold.Add(1)%coldAsk == 0
}

// asksBulk reports whether a large block is looked up in the page cache.
func (f *File) asksBulk() bool {
	misses := f.misses.Load()
	return misses < bulkMisses || misses%bulkAsk == 0 || f.sys.bulk.Load() >= bulkPlain
}

// While all reads of a file find their data in the page cache, small ones may be plain calls:
// see plainIsFaster. Those at one offset in hotAsk ask the cache all the same. The first one that does not
// find its data ends this.
const (
	hotMax   = 16 << 10 // bytes of a small read
	hotAfter = 64       // cached reads in succession
	hotAsk   = 1 << hotBits
	hotBits  = 6
)

// wasCached notes that the page cache had the data of a read.
func (f *File) wasCached(p []byte, off int64) {
	switch {
	case len(p) >= bulkMin:
		f.misses.Store(0)
	case f.cachedSoFar(p) && plainIsFaster(f.fd, p, off):
		f.plain.Add(hotAsk - 1) // the hot reads since the last one that asked
	}
}

// cachedSoFar reports whether a read is small and the last reads of the file were cached.
func (f *File) cachedSoFar(p []byte) bool { return f.hits.Load() >= hotAfter && len(p) <= hotMax }

// asks reports whether a hot read at an offset asks the page cache. Multiplying spreads the offsets
// (Knuth, The Art of Computer Programming, 6.4).
func asks(off int64) bool { return uint64(off+1)*0x9E3779B97F4A7C15>>(64-hotBits) == 0 }

// hotCall is the faster call for cached data on this machine: callUnknown, callRaw or
// callPlain.
var hotCall atomic.Uint32

const (
	callUnknown = iota
	callRaw
	callPlain
)

// plainIsFaster reports whether a plain pread(2) of cached data takes less time than
// preadv2(2) with RWF_NOWAIT. The latter does not enter the scheduler. The kernel needs
// more time for it: it copies the vector, and calls more functions, which is expensive
// with the mitigation of SRSO on AMD's Zen 3 and 4. The first call in a process compares
// the two by reading the block a few times.
func plainIsFaster(fd int, p []byte, off int64) bool {
	if c := hotCall.Load(); c != callUnknown || !hotCall.CompareAndSwap(callUnknown, callRaw) {
		return c == callPlain
	}
	raw, plain := time.Hour, time.Hour
	for range 32 {
		begin := time.Now()
		_, errno := sys.PreadNoWait(fd, p, off)
		middle := time.Now()
		_, err := sys.Pread(fd, p, off)
		if errno != 0 || err != nil {
			hotCall.Store(callUnknown) // not cached any more: the next call compares
			return false
		}
		raw, plain = min(raw, middle.Sub(begin)), min(plain, time.Since(middle))
	}
	if plain < raw {
		hotCall.Store(callPlain)
	}
	return plain < raw
}

// endsAt reports whether a read of the page cache that got less than it asked for, and stopped at an
// offset, has found the end of the file. Pages are cached as a whole, so that a read that stops for lack
// of one stops between two pages. A block device ends at a sector.
func endsAt(off int64) bool { return off%smallestPage != 0 }

// smallestPage is the size of the smallest page that a supported kernel has.
const smallestPage = 4096

// readCached reads from the page cache. It returns false if another path must be
// tried.
func (f *File) readCached(p []byte, off int64) (int, bool) {
	var n int
	var errno syscall.Errno
	if p = p[:min(len(p), cachedMax)]; f.hits.Load() == 0 {
		n, errno = sys.PreadvNoWait(f.fd, [][]byte{p}, len(p), off) // enters the scheduler
	} else {
		n, errno = sys.PreadNoWait(f.fd, p, off)
	}
	switch errno {
	case 0:
		if n > 0 {
			f.cached.Add(1)
			if hits := f.hits.Load(); hits < hotAfter {
				f.hits.Store(hits + 1)
				f.cold.Store(0)
			}
		}
		return n, true
	case syscall.EAGAIN:
		f.hits.Store(0)
		if !f.isCold() {
			f.cold.Add(1)
		}
		f.known.CompareAndSwap(uint32(routeUnknown), uint32(routeInline))
	case syscall.EINVAL: // from kernels that do not know the flag, and at offsets out of range
		if off > math.MaxInt64-int64(len(p)) {
			break
		}
		fallthrough
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPERM:
		f.known.Store(uint32(routeWorker))
	}
	return 0, false
}
