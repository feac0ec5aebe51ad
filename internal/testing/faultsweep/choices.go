// SPDX-License-Identifier: MIT

package faultsweep

import (
	"slices"
	"syscall"
)

// Choice is one way in which an answer can fail.
type Choice struct {
	Errno syscall.Errno
	// Short requests half of the transfer. Late makes a worker thread carry it out.
	// Drop holds the completion back until the run is over. No kernel does that: it
	// shows that a test would notice.
	Short, Late, Drop bool
	// On simulated rings: Stale makes a completion appear again. Lost makes a
	// cancellation answer, with Errno or success, without effect. Split ends a
	// submission inside a chain. Full makes a completion overflow, and ends the
	// multishot operation that it belongs to.
	Stale, Lost, Split, Full bool
	// Passing: nothing is lost, so the operation must succeed. Once: it may fail if
	// the fault happens again.
	Passing, Once bool
}

// String names the choice as the kernel's headers do.
func (c Choice) String() string {
	switch {
	case c.Short:
		return "short"
	case c.Late:
		return "late"
	case c.Drop:
		return "dropped"
	case c.Stale:
		return "twice"
	case c.Split:
		return "split"
	case c.Full:
		return "full"
	case c.Lost && c.Errno == 0:
		return "lost"
	case c.Lost:
		return "lost, " + Choice{Errno: c.Errno}.String()
	}
	if name, ok := names[c.Errno]; ok {
		return name
	}
	return c.Errno.Error()
}

var names = map[syscall.Errno]string{
	syscall.EIO: "EIO", syscall.ENOSPC: "ENOSPC", syscall.EINTR: "EINTR", syscall.EAGAIN: "EAGAIN",
	syscall.EBUSY: "EBUSY", syscall.ENOBUFS: "ENOBUFS", syscall.ECANCELED: "ECANCELED", syscall.ENOMEM: "ENOMEM",
	syscall.EBADF: "EBADF", syscall.ECONNRESET: "ECONNRESET", syscall.EPIPE: "EPIPE", syscall.EMFILE: "EMFILE",
	syscall.ENFILE: "ENFILE", syscall.ECONNABORTED: "ECONNABORTED", syscall.EALREADY: "EALREADY",
	syscall.ENOENT: "ENOENT", syscall.EPERM: "EPERM", syscall.ENOSYS: "ENOSYS", syscall.EINVAL: "EINVAL",
	syscall.EOPNOTSUPP: "EOPNOTSUPP", syscall.EXDEV: "EXDEV", syscall.ETIMEDOUT: "ETIMEDOUT",
	syscall.ENOTCONN: "ENOTCONN", syscall.EADDRINUSE: "EADDRINUSE", syscall.ETIME: "ETIME",
}

// Fails returns choices after which an operation may end with the errno.
func Fails(errnos ...syscall.Errno) (cs []Choice) {
	for _, e := range errnos {
		cs = append(cs, Choice{Errno: e})
	}
	return cs
}

// Passes returns choices after which the operation must succeed nevertheless.
func Passes(errnos ...syscall.Errno) (cs []Choice) {
	for _, e := range errnos {
		cs = append(cs, Choice{Errno: e, Passing: true})
	}
	return cs
}

// half returns the size of a short transfer, for O_DIRECT a whole number of blocks; 0 if
// the transfer cannot be shortened.
func half(n int) int {
	const block = 4096
	if n%block == 0 {
		return n / block / 2 * block
	}
	return n / 2
}

var (
	short = Choice{Short: true, Passing: true}
	late  = Choice{Late: true, Passing: true}
	stale = Choice{Stale: true, Passing: true}
)

// lost are cancellations that have no effect, whatever they report.
func lost(errnos ...syscall.Errno) (cs []Choice) {
	for _, e := range errnos {
		cs = append(cs, Choice{Errno: e, Lost: true, Passing: true})
	}
	return cs
}

// Choices lists the ways in which each kind of answer can fail. It leaves out errors that
// the kernel does not return for valid descriptors and memory, and answers that would be
// wrong about a socket: EAGAIN although there is data, after which no event would come.
var Choices = map[string][]Choice{
	"READ":           answered(syscall.EIO, syscall.ENOMEM, syscall.EBADF),
	"READ_FIXED":     answered(syscall.EIO, syscall.ENOMEM, syscall.EBADF),
	"READV":          answered(syscall.EIO, syscall.ENOMEM, syscall.EBADF),
	"WRITE":          answered(syscall.EIO, syscall.ENOSPC, syscall.ENOMEM, syscall.EBADF),
	"WRITEV":         answered(syscall.EIO, syscall.ENOSPC, syscall.ENOMEM, syscall.EBADF),
	"WRITE_FIXED":    answered(syscall.EIO, syscall.ENOSPC, syscall.ENOMEM, syscall.EBADF),
	"READ_MULTISHOT": append(Fails(syscall.EIO), append(Passes(syscall.ENOBUFS), late)...),
	"FSYNC":          append(Fails(syscall.EIO, syscall.ENOSPC, syscall.EBADF, syscall.ECANCELED), append(Passes(syscall.EINTR), late)...),
	"SPLICE":         transfers(syscall.EIO, syscall.ENOSPC, syscall.ENOMEM),
	"RECV":           append(Fails(syscall.ECONNRESET, syscall.ENOMEM, syscall.EIO), append(Passes(syscall.EINTR, syscall.EAGAIN, syscall.ENOBUFS, syscall.ECANCELED), late)...),
	"RECVMSG":        append(Fails(syscall.ENOMEM, syscall.EIO), append(Passes(syscall.EINTR, syscall.EAGAIN, syscall.ENOBUFS, syscall.ECANCELED), late)...),
	"SEND":           append(Fails(syscall.ECONNRESET, syscall.EPIPE, syscall.ENOMEM, syscall.EIO), append(Passes(syscall.EINTR, syscall.EAGAIN, syscall.ECANCELED), short, late)...),
	"ACCEPT": append(Passes(syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.EINTR, syscall.EAGAIN, syscall.ECANCELED, syscall.EPERM), late),
	"POLL_ADD":     append(Passes(syscall.ENOMEM, syscall.ECANCELED, syscall.EINTR), late),
	"EPOLL_CTL":    append(Fails(syscall.ENOMEM, syscall.ENOSPC, syscall.EINTR, syscall.ECANCELED), late), // for a caller that does it itself
	"EPOLL_WAIT":   append(Fails(syscall.EINTR, syscall.EAGAIN, syscall.ECANCELED), late),
	"LINK_TIMEOUT": nil, // a part of what it is linked to
	"POLL_REMOVE":  append(Passes(syscall.EALREADY, syscall.ENOENT, syscall.ECANCELED), late),
	"ASYNC_CANCEL": append(Passes(syscall.EALREADY, syscall.ENOENT, syscall.EINTR, syscall.ECANCELED), late),

	"io_uring_enter":    append(Passes(syscall.EINTR, syscall.EAGAIN, syscall.EBUSY, syscall.ENOMEM), append(Fails(syscall.EBADF), short)...),
	"io_uring_setup":    Fails(syscall.ENOMEM, syscall.EMFILE, syscall.EPERM, syscall.ENOSYS),
	"io_uring_register": Fails(syscall.ENOMEM, syscall.EBUSY, syscall.EPERM),
	"mmap":              Fails(syscall.ENOMEM),
	"dup":               Fails(syscall.EMFILE),
	"eventfd":           Fails(syscall.EMFILE, syscall.ENOMEM),
	"epoll_create1":     Fails(syscall.EMFILE, syscall.ENOMEM),
	"epoll_ctl add":     Fails(syscall.ENOMEM, syscall.ENOSPC),
	"epoll_ctl mod":     nil, // what is there needs no memory
	"epoll_ctl del":     nil,
	"epoll_wait":        append(Passes(syscall.EINTR), short),
	"poll":              Passes(syscall.EINTR, syscall.ENOMEM),
	"pipe2":             Fails(syscall.EMFILE, syscall.ENFILE),

	"recv":       append(Fails(syscall.ECONNRESET, syscall.ENOMEM, syscall.ETIMEDOUT), Passes(syscall.EINTR)...),
	"send":       append(Fails(syscall.ECONNRESET, syscall.EPIPE, syscall.ENOMEM, syscall.ENOBUFS), append(Passes(syscall.EINTR), short)...),
	"sendmsg":    append(Fails(syscall.ECONNRESET, syscall.EPIPE, syscall.ENOBUFS), Passes(syscall.EINTR)...),
	"recvmmsg":   append(Fails(syscall.ENOMEM), append(Passes(syscall.EINTR), short)...),
	"sendmmsg":   append(Fails(syscall.ENOBUFS, syscall.ENOMEM), append(Passes(syscall.EINTR), short)...),
	"accept":     append(Fails(syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM), Passes(syscall.ECONNABORTED, syscall.EINTR)...),
	"sendfile":   append(Fails(syscall.EIO, syscall.ECONNRESET), append(Passes(syscall.EINTR, syscall.EINVAL), short)...),
	"splice":     append(Fails(syscall.EIO), append(Passes(syscall.EINTR), short)...),
	"setsockopt": Fails(syscall.ENOMEM, syscall.EPERM),
	"shutdown":   Fails(syscall.ENOTCONN),
	"listen":     Fails(syscall.EADDRINUSE),

	"pread":           append(Fails(syscall.EIO), append(Passes(syscall.EINTR), short)...),
	"pwrite":          append(Fails(syscall.EIO, syscall.ENOSPC), append(Passes(syscall.EINTR), short)...),
	"preadv":          append(Fails(syscall.EIO), append(Passes(syscall.EINTR), short)...), // short: fewer buffers
	"pwritev":         append(Fails(syscall.EIO, syscall.ENOSPC), append(Passes(syscall.EINTR), short)...),
	"flock":           append(Fails(syscall.ENOLCK), Passes(syscall.EINTR)...),
	"preadv2":         append(Passes(syscall.EAGAIN, syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINTR), short),
	"path call":       append(Fails(syscall.EIO, syscall.ENOMEM, syscall.EPERM), Passes(syscall.EINTR)...),
	"fdatasync":       append(Fails(syscall.EIO, syscall.ENOSPC), Passes(syscall.EINTR)...),
	"clone":           Passes(syscall.EOPNOTSUPP, syscall.EXDEV, syscall.EINVAL, syscall.EIO, syscall.ENOSPC),
	"open":            Passes(syscall.EMFILE, syscall.ENFILE, syscall.ENOENT, syscall.EPERM),
	"close":           Fails(syscall.EIO, syscall.EINTR), // the descriptor is closed nevertheless
	"lseek":           Passes(syscall.EINVAL, syscall.EIO),
	"fcntl":           Passes(syscall.EPERM, syscall.ENOSYS),
	"copy_file_range": append(Fails(syscall.EIO, syscall.ENOSPC), append(Passes(syscall.EINTR, syscall.EXDEV, syscall.ENOSYS), short)...),
}

// Simulated lists the same for simulated rings, where operations fail after they have
// begun, completions appear twice, and cancellations have no effect. The calls of the
// ring are "submit", "wait", "wake" and "parker".
var Simulated = map[string][]Choice{
	"READ":           append(transfers(syscall.EIO, syscall.ENOMEM), stale),
	"READ_FIXED":     append(transfers(syscall.EIO, syscall.ENOMEM), stale),
	"WRITE":          append(transfers(syscall.EIO, syscall.ENOSPC, syscall.ENOMEM), stale),
	"WRITE_FIXED":    append(transfers(syscall.EIO, syscall.ENOSPC, syscall.ENOMEM), stale),
	"FSYNC":          append(Fails(syscall.EIO, syscall.ENOSPC), append(Passes(syscall.EINTR, syscall.ECANCELED), late, stale)...),
	"POLL_ADD":       append(Fails(syscall.EIO), append(Passes(syscall.ECANCELED), late, stale)...),
	"READ_MULTISHOT": append(Fails(syscall.EIO), append(Passes(syscall.ENOBUFS, syscall.ECANCELED), short, late)...),
	"NOP":            append(Fails(syscall.EIO), append(Passes(syscall.ECANCELED), late, stale)...),
	"ASYNC_CANCEL":   append(lost(0, syscall.EALREADY, syscall.ENOENT), late, stale),
	"LINK_TIMEOUT":   append(lost(syscall.ETIME, syscall.EALREADY), Passes(syscall.EINVAL)...),
	"submit": append(Passes(syscall.EAGAIN, syscall.EBUSY, syscall.ENOMEM), // package uring handles EINTR
		append(Fails(syscall.EBADF), short, Choice{Split: true, Passing: true})...),
	"wait":   Passes(syscall.EINTR),
	"wake":   {late},
	"parker": Fails(syscall.EIO),
}

// AtSyscalls lists the same for rings on simulated system calls. Of errnos that are
// handled alike, which the sweep on the kernel's rings tries, it has some. No completion
// appears twice: users of the kernel's own rings need not handle that. "io_uring_enter"
// takes fewer SQEs or none. "wait" and "wake" are as in Simulated. "completion" is each
// completion that appears.
var AtSyscalls = map[string][]Choice{
	"READ":        transfers(syscall.EIO),
	"READ_FIXED":  transfers(syscall.EIO),
	"WRITE":       transfers(syscall.EIO, syscall.ENOSPC),
	"WRITE_FIXED": transfers(syscall.EIO, syscall.ENOSPC),
	"RECV":        append(Fails(syscall.ECONNRESET, syscall.ENOMEM), append(Passes(syscall.EINTR, syscall.EAGAIN, syscall.ENOBUFS, syscall.ECANCELED), short, late)...),
	"SEND":        append(Fails(syscall.ECONNRESET, syscall.ENOMEM), append(Passes(syscall.EINTR, syscall.EAGAIN, syscall.ECANCELED), short, late)...),
	"ACCEPT":      append(Passes(syscall.ECONNABORTED, syscall.EMFILE, syscall.ECANCELED), late),
	"POLL_ADD":    append(Passes(syscall.ENOMEM, syscall.ECANCELED), late),
	// The operation to be changed or cancelled has just ended, or another thread
	// works on it, or the kernel reports that.
	"POLL_REMOVE":    lost(syscall.EALREADY, syscall.ENOENT, syscall.ECANCELED),
	"ASYNC_CANCEL":   append(lost(syscall.EALREADY, syscall.ENOENT, syscall.ECANCELED), late),
	"io_uring_enter": append(Passes(syscall.EINTR, syscall.EAGAIN, syscall.EBUSY), append(Fails(syscall.EBADF), short)...),
	"wait":           Passes(syscall.EINTR),
	"wake":           {late},
	"completion":     {{Full: true, Passing: true}},
}

// Opening lists the kinds that open a ring and its memory. Of several operations that
// open rings in the same way, one needs to sweep these kinds.
var Opening = []string{"io_uring_setup", "io_uring_register", "mmap", "dup", "eventfd", "epoll_create1", "epoll_ctl add"}

// answered are the choices of reads and writes where ECANCELED comes from the file itself,
// because no thread has exited.
func answered(fatal ...syscall.Errno) []Choice {
	return append(slices.DeleteFunc(transfers(fatal...), func(c Choice) bool { return c.Errno == syscall.ECANCELED }), Fails(syscall.ECANCELED)...)
}

// transfers are the choices of reads and writes.
func transfers(fatal ...syscall.Errno) []Choice {
	// The kernel's worker threads wait where EAGAIN comes, so that their EAGAIN is final.
	again := Choice{Errno: syscall.EAGAIN, Passing: true, Once: true}
	return append(Fails(fatal...), append(Passes(syscall.EINTR, syscall.ECANCELED), again, short, late)...)
}
