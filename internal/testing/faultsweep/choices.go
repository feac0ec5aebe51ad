// SPDX-License-Identifier: MIT

package faultsweep

import (
	"slices"
	"syscall"
)

// Choice is one way in which an answer can go wrong.
type Choice struct {
	Errno syscall.Errno
	// Short asks for half of what was asked for; Late has a worker thread do it;
	// Drop lets the completion wait until the run is over, which no kernel does:
	// it shows that a test would notice.
	Short, Late, Drop bool
	// Of simulated rings: Stale has a completion come again, Lost a cancellation
	// answer, with Errno or success, and what it is for go on; Split ends a
	// submission inside a chain; Full has a completion find no room, so that it has
	// to be fetched, and end what would go on.
	Stale, Lost, Split, Full bool
	// Passing says that nothing is lost, so that the operation has to succeed;
	// Once, that it may fail where that happens again.
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

// Fails are choices after which an operation may end with the errno.
func Fails(errnos ...syscall.Errno) (cs []Choice) {
	for _, e := range errnos {
		cs = append(cs, Choice{Errno: e})
	}
	return cs
}

// Passes are choices after which it has to succeed all the same.
func Passes(errnos ...syscall.Errno) (cs []Choice) {
	for _, e := range errnos {
		cs = append(cs, Choice{Errno: e, Passing: true})
	}
	return cs
}

// half returns how much a short answer is for, of which O_DIRECT leaves whole
// blocks; 0 where nothing would be left of it.
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

// lost are cancellations that say what they say, and do nothing.
func lost(errnos ...syscall.Errno) (cs []Choice) {
	for _, e := range errnos {
		cs = append(cs, Choice{Errno: e, Lost: true, Passing: true})
	}
	return cs
}

// Choices are the ways in which each kind of answer can go wrong. Left out is
// what the kernel does not say of our own descriptors and memory, and what would
// be a lie about the state of a socket: that there is nothing to read when there
// is, of which no event follows.
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
	"lseek":           Passes(syscall.EINVAL, syscall.EIO),
	"fcntl":           Passes(syscall.EPERM, syscall.ENOSYS),
	"copy_file_range": append(Fails(syscall.EIO, syscall.ENOSPC), append(Passes(syscall.EINTR, syscall.EXDEV, syscall.ENOSYS), short)...),
}

// Simulated are the same for simulated rings, where operations fail after they
// have begun, completions come twice, and cancellations reach nothing. Calls of
// the ring are "submit", "wait", "wake" and "parker".
var Simulated = map[string][]Choice{
	"READ":           append(transfers(syscall.EIO, syscall.ENOMEM), stale),
	"WRITE":          append(transfers(syscall.EIO, syscall.ENOSPC, syscall.ENOMEM), stale),
	"FSYNC":          append(Fails(syscall.EIO, syscall.ENOSPC), append(Passes(syscall.EINTR, syscall.ECANCELED), late, stale)...),
	"POLL_ADD":       append(Fails(syscall.EIO), append(Passes(syscall.ECANCELED), late, stale)...),
	"READ_MULTISHOT": append(Fails(syscall.EIO), append(Passes(syscall.ENOBUFS, syscall.ECANCELED), short, late)...),
	"NOP":            append(Fails(syscall.EIO), append(Passes(syscall.ECANCELED), late, stale)...),
	"ASYNC_CANCEL":   append(lost(0, syscall.EALREADY, syscall.ENOENT), late, stale),
	"LINK_TIMEOUT":   append(lost(syscall.ETIME, syscall.EALREADY), Passes(syscall.EINVAL)...),
	"submit": append(Passes(syscall.EAGAIN, syscall.EBUSY, syscall.ENOMEM), // EINTR is package uring's to meet
		append(Fails(syscall.EBADF), short, Choice{Split: true, Passing: true})...),
	"wait":   Passes(syscall.EINTR),
	"wake":   {late},
	"parker": Fails(syscall.EIO),
}

// AtSyscalls are the same for rings that are simulated below package uring: of errnos
// that are handled alike, which the kernel's rings are swept with, some. None comes
// twice there: a user of the kernel's own rings need not bear that. Of calls
// "io_uring_enter" takes fewer entries or none, "wait" and "wake" are what they are
// in Simulated; "completion" is each that appears.
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
	// works on it; or the kernel reports so.
	"POLL_REMOVE":    lost(syscall.EALREADY, syscall.ENOENT, syscall.ECANCELED),
	"ASYNC_CANCEL":   append(lost(syscall.EALREADY, syscall.ENOENT, syscall.ECANCELED), late),
	"io_uring_enter": append(Passes(syscall.EINTR, syscall.EAGAIN, syscall.EBUSY), append(Fails(syscall.EBADF), short)...),
	"wait":           Passes(syscall.EINTR),
	"wake":           {late},
	"completion":     {{Full: true, Passing: true}},
}

// Opening are the kinds with which rings and what belongs to them are opened.
// Operations that share that may leave them to one.
var Opening = []string{"io_uring_setup", "io_uring_register", "mmap", "dup", "eventfd", "epoll_create1", "epoll_ctl add"}

// answered are the choices of reads and writes where ECANCELED is the file's own answer,
// as no thread has exited.
func answered(fatal ...syscall.Errno) []Choice {
	return append(slices.DeleteFunc(transfers(fatal...), func(c Choice) bool { return c.Errno == syscall.ECANCELED }), Fails(syscall.ECANCELED)...)
}

// transfers are the choices of reads and writes.
func transfers(fatal ...syscall.Errno) []Choice {
	// The kernel's worker threads wait where EAGAIN comes, so that their EAGAIN is final.
	again := Choice{Errno: syscall.EAGAIN, Passing: true, Once: true}
	return append(Fails(fatal...), append(Passes(syscall.EINTR, syscall.ECANCELED), again, short, late)...)
}
