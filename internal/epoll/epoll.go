// SPDX-License-Identifier: MIT

// Package epoll is one epoll(7) instance: the half of package watch that works
// wherever Linux does. On other systems Open answers errors.ErrUnsupported.
//
// Add, Modify, Remove and Wait may be called concurrently; Close must not
// overlap with any of them.
package epoll

import (
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// Event masks beside those of poll(2).
const (
	EdgeTriggered uint32 = 1 << 31 // EPOLLET
	OneShot       uint32 = 1 << 30 // EPOLLONESHOT
)

// Operations of epoll_ctl(2).
const (
	ctlAdd = 1
	ctlDel = 2
	ctlMod = 3
)

// Event is one report: the mask, and the data read with [Data].
type Event = sys.EpollEvent

// Data returns what Add or Modify gave the descriptor of an event.
func Data(ev *Event) uint64 { return sys.EpollData(ev) }

// Instance is an epoll instance.
type Instance struct {
	fd     *sys.FD
	coarse atomic.Bool // the kernel has no timeouts in nanoseconds
}

// Open opens an instance.
func Open() (*Instance, error) {
	fd, err := sys.EpollCreate()
	if err != nil {
		return nil, err
	}
	return &Instance{fd: fd}, nil
}

// FD returns the descriptor, which the instance owns.
func (in *Instance) FD() int { return in.fd.Int() }

// Close closes the instance; the second call answers EBADF.
func (in *Instance) Close() error { return in.fd.Close() }

// Add starts to watch fd for a mask; data comes with its events. Errors: EEXIST,
// EBADF, EPERM for a file that cannot be polled, ENOSPC, ENOMEM.
func (in *Instance) Add(fd int, events uint32, data uint64) syscall.Errno {
	return sys.EpollCtl(in.FD(), ctlAdd, fd, events, data)
}

// Modify replaces mask and data of fd, and reports anew what is ready. Errors:
// ENOENT, EBADF.
func (in *Instance) Modify(fd int, events uint32, data uint64) syscall.Errno {
	return sys.EpollCtl(in.FD(), ctlMod, fd, events, data)
}

// Remove stops watching fd. Errors: ENOENT, EBADF.
func (in *Instance) Remove(fd int) syscall.Errno {
	return sys.EpollCtl(in.FD(), ctlDel, fd, 0, 0)
}

// Wait fills events and returns how many there are, waiting for the first one:
// forever with a negative timeout, not at all with 0. No events after the
// timeout is no error. EINTR is the caller's, who knows what time is left.
func (in *Instance) Wait(events []Event, timeout time.Duration) (int, syscall.Errno) {
	n, errno := in.wait(events, timeout)
	return max(n, 0), errno
}

// PollSockets is Wait with no timeout that is hidden from the scheduler. All
// descriptors of the instance must be sockets; see [sys.EpollPollSockets].
func (in *Instance) PollSockets(events []Event) (int, syscall.Errno) {
	n, errno := sys.EpollPollSockets(in.FD(), events)
	return max(n, 0), errno
}

func (in *Instance) wait(events []Event, timeout time.Duration) (int, syscall.Errno) {
	switch {
	case timeout == 0:
		return sys.EpollWait(in.FD(), events, 0)
	case timeout < 0:
		return sys.EpollWait(in.FD(), events, -1)
	case !in.coarse.Load():
		n, errno := sys.EpollWait2(in.FD(), events, timeout)
		if errno != syscall.ENOSYS && errno != syscall.EPERM {
			return n, errno
		}
		in.coarse.Store(true) // before Linux 5.11, or a filter that is as old
	}
	return sys.EpollWait(in.FD(), events, millis(timeout))
}

// millis rounds a timeout up, so that a short one does not become a spin.
func millis(d time.Duration) int {
	const most = 1<<31 - 1
	return int(min((d+time.Millisecond-1)/time.Millisecond, most))
}
