// SPDX-License-Identifier: MIT

package ufile

import (
	"math"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// route is how positional reads and writes of a file reach the kernel.
//
// A raw system call, and the submission to a ring, keep their P: if one of them blocks,
// all goroutines of the process may stop. So only files that the kernel can read without
// blocking (FMODE_NOWAIT) are read in this way. These are files of ext4, XFS, Btrfs and
// F2FS, and block devices, but not files of FUSE, virtiofs, NFS, CIFS, 9p, Ceph,
// overlayfs, squashfs, procfs and sysfs. TestSilentFiles in referees/fusefs fails
// otherwise.
type route uint32

const (
	routeUnknown route = iota
	// routeInline: raw calls read cached data, and a ring executes entries while
	// they are submitted.
	routeInline
	// routeWorker: plain calls. With ModeRing a worker thread of the ring executes
	// the entries (IOSQE_ASYNC); submitting them does not block.
	routeWorker
	// routePlain: plain calls in every mode. If a regular file can be polled, as
	// files of FUSE can, a ring continues a short read, also in a worker thread, and
	// with direct I/O at the same offset: a read across the end of the file counts
	// bytes that do not exist (seen on Linux 6.18; TestAnswers in referees/fusefs).
	routePlain
)

// route returns the route of the file. The first call makes a system call.
func (f *File) route() route {
	if r := route(f.known.Load()); r != routeUnknown {
		return r
	}
	if !f.lock.Acquire() { // closing: the caller's own reference keeps the descriptor open
		return routePlain
	}
	defer f.lock.Release()
	r := f.findRoute()
	f.known.Store(uint32(r))
	return r
}

// findRoute asks the kernel whether it reads the file without blocking. docs/submission.md has the
// answers by file system.
func (f *File) findRoute() route {
	yes, errno := sys.ReadsNoWait(f.fd)
	switch {
	case yes:
		return routeInline
	case f.findPolled():
		return routePlain
	}
	auto := f.sys.opts.Mode == ModeAuto
	if auto && errno != syscall.EBADF { // routeWorker and routePlain are the same
		return routePlain
	}
	switch sys.FileSystem(f.fd) {
	case sys.FSFuse:
		return routePlain
	case sys.FSExt4, sys.FSXFS, sys.FSBtrfs, sys.FSF2FS:
		if errno == syscall.EBADF { // open for writing only
			return routeInline
		}
	}
	return routeWorker
}

// findPolled reports whether os can poll the file: then os has set O_NONBLOCK.
func (f *File) findPolled() bool {
	flags, err := sys.OpenFlags(f.fd)
	f.polled.Store(err == nil && flags&sys.ONonblock != 0)
	return f.polled.Load()
}

// ringable reports whether operations of the file may go through a ring.
func (f *File) ringable() bool {
	switch f.route() {
	case routeInline:
		return true
	case routeWorker:
		return f.sys.opts.Mode == ModeRing
	}
	return false
}

// askCache reports whether the page cache may have parts of the file that a raw
// call can read.
func (f *File) askCache() bool { return !f.direct && route(f.known.Load()) <= routeInline }

// submitAs sets the flags with which an entry for the file is submitted.
func (f *File) submitAs(e *uring.SQE) {
	if f.route() == routeWorker {
		e.SetFlags(uring.SQEAsync)
	}
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

// While all reads of a file find their data in the page cache, small ones may be plain calls:
// see plainIsFaster. Those at one offset in hotAsk ask the cache all the same. The first one that does not
// find its data ends this.
const (
	hotMax   = 16 << 10 // bytes of a small read
	hotAfter = 64       // cached reads in succession
	hotAsk   = 1 << hotBits
	hotBits  = 6
)

// hot reports whether a read is a plain call because the file was cached so far. The caller does
// not count that call: goroutines that read one file would wait for the counter. Those that ask the cache
// count it, for hotAsk calls each.
func (f *File) hot(p []byte, off int64) bool {
	return f.cachedSoFar(p) && hotCall.Load() == callPlain && !asks(off)
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

// choose returns the rings for a transfer. If they are nil, the transfer is to be a plain
// call, because the file or the system has no use for rings or because nothing else is in
// flight. The caller calls done on the turn afterwards. The error comes from opening
// rings with ModeRing.
func (f *File) choose() (*reactor.Reactor, plainTurn, error) {
	if !f.ringable() {
		return nil, plainTurn{}, nil
	}
	auto := f.sys.opts.Mode == ModeAuto
	if auto && f.sys.tryAlone() {
		return nil, plainTurn{alone: f.sys}, nil
	}
	r, err := f.sys.reactor()
	if r == nil || !auto {
		return r, plainTurn{}, err
	}
	if turn, plain := r.TryPlain(); plain {
		return nil, plainTurn{beside: turn}, nil
	}
	return r, plainTurn{}, nil
}

// plainTurn is the right to make a plain call instead of an operation. The zero value is
// for files and systems whose calls are always plain.
type plainTurn struct {
	alone  *System      // set where its rings are not open
	beside reactor.Turn // of open rings
}

func (t plainTurn) done() {
	if t.alone != nil {
		t.alone.alone.Store(false)
	}
	t.beside.Done()
}

// readCached reads from the page cache. It returns false if another path must be
// tried.
func (f *File) readCached(p []byte, off int64) (int, bool) {
	n, errno := sys.PreadNoWait(f.fd, p[:min(len(p), cachedMax)], off)
	switch errno {
	case 0:
		if n > 0 {
			f.cached.Add(1)
			if hits := f.hits.Load(); hits < hotAfter {
				f.hits.Store(hits + 1)
			}
		}
		return n, true
	case syscall.EAGAIN:
		f.hits.Store(0)
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
