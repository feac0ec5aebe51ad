// SPDX-License-Identifier: MIT

package ufile

import (
	"context"
	"syscall"

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

// accelerated reports whether positional calls may take another path than os.File's.
func (f *File) accelerated() bool { return f.seekable() && f.sys.opts.Mode != ModePlain }

// submitAs sets the flags with which an entry for the file is submitted.
func (f *File) submitAs(e *uring.SQE) {
	if f.route() == routeWorker {
		e.SetFlags(uring.SQEAsync)
	}
}

// choose returns the rings for a transfer. If they are nil, the transfer is to be a plain
// call, because the file or the system has no use for rings, because nothing else is in
// flight, or because a bulk read, which is large and probably not cached, is one of few. A
// transfer that ctx may end does not wait until others are in flight: a plain call cannot be
// cancelled. The caller calls done on the turn afterwards. The error comes from opening rings
// with ModeRing.
func (f *File) choose(ctx context.Context, bulk bool) (*reactor.Reactor, turn, error) {
	if !f.ringable() {
		return nil, turn{}, nil
	}
	auto := f.sys.opts.Mode == ModeAuto
	var t turn
	if bulk && auto {
		f.misses.Add(1)
		t.bulk = f.sys
		if f.sys.bulk.Add(1) <= bulkPlain {
			return nil, t, nil
		}
	}
	auto = auto && ctx.Done() == nil
	if auto && f.sys.tryAlone() {
		t.alone = f.sys
		return nil, t, nil
	}
	r, err := f.sys.reactor()
	if r == nil || !auto {
		return r, t, err
	}
	plain := false
	if t.beside, plain = r.TryPlain(); plain {
		return nil, t, nil
	}
	return r, t, nil
}

// turn is the right to transfer. The zero value is for files and systems whose calls are always
// plain.
type turn struct {
	alone  *System      // of a plain call: set where its rings are not open
	beside reactor.Turn // of a plain call beside open rings
	bulk   *System      // of a bulk read
}

func (t turn) done() {
	if t.alone != nil {
		t.alone.alone.Store(false)
	}
	if t.bulk != nil {
		t.bulk.bulk.Add(-1)
	}
	t.beside.Done()
}
