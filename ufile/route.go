// SPDX-License-Identifier: MIT

package ufile

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// route is how positional reads and writes of a file may reach the kernel. A raw
// system call and the submission of a ring keep their P, so that a read that
// blocks in one of them stops the goroutines of the whole process. Only files
// that the kernel can read without blocking (FMODE_NOWAIT) may be read there:
// those of ext4, XFS, Btrfs, F2FS and block devices, but not of FUSE, virtiofs,
// NFS, CIFS, 9p, Ceph, overlayfs, squashfs, procfs or sysfs. TestSilentFiles and
// TestFileSystems in referees/fusefs see to it.
type route uint32

const (
	routeUnknown route = iota
	// routeInline: the page cache is asked by raw calls, and a ring executes
	// entries while they are submitted.
	routeInline
	// routeWorker: plain calls. With ModeRing a worker thread of the ring
	// executes entries (IOSQE_ASYNC), and nothing is tried while they are
	// submitted.
	routeWorker
	// routePlain: plain calls in every mode. Where a regular file has a poll
	// method, as those of FUSE have, a ring continues a short read even in a
	// worker thread, and with direct I/O at the same offset: a read across the
	// end of the file counts bytes that are not there (seen on Linux 6.18).
	routePlain
)

// route returns how to reach the kernel. It finds out when it is first asked, by
// one system call; a file that is never read or written at an offset costs none.
func (f *File) route() route {
	if r := route(f.known.Load()); r != routeUnknown {
		return r
	}
	if !f.lock.Acquire() { // Close waits for the caller: the descriptor is open, but not for long
		return routePlain
	}
	defer f.lock.Release()
	r := f.findRoute()
	f.known.Store(uint32(r))
	return r
}

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

// findPolled finds out whether os can poll the file: then it has set O_NONBLOCK.
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

// askCache reports whether the page cache may hold parts of the file that a raw
// call can read.
func (f *File) askCache() bool { return !f.direct && route(f.known.Load()) <= routeInline }

// submitAs sets the flags with which an entry for the file is submitted.
func (f *File) submitAs(e *uring.SQE) {
	if f.route() == routeWorker {
		e.SetFlags(uring.SQEAsync)
	}
}
