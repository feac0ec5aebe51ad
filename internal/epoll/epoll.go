// SPDX-License-Identifier: MIT

// Package epoll wraps an epoll(7) instance. On systems other than Linux Open returns
// errors.ErrUnsupported.
//
// Add, Modify, Remove, Wait and PollSockets may be called concurrently. Close must not
// be called concurrently with any of them.
package epoll

import (
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// Event masks in addition to the masks of poll(2).
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

// Event is one event: the mask, and the user data that [Data] returns.
type Event = sys.EpollEvent

// Data returns the user data that Add or Modify set for the descriptor of an event.
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

// Close closes the instance; a second call returns EBADF.
func (in *Instance) Close() error { return in.fd.Close() }

// Add starts to watch fd for a mask of events. Each event returns data. Errors: EEXIST,
// EBADF, EPERM for a file that cannot be polled, ENOSPC, ENOMEM.
func (in *Instance) Add(fd int, events uint32, data uint64) syscall.Errno {
	return sys.EpollCtl(in.FD(), ctlAdd, fd, events, data)
}

// Modify replaces the mask and the data of fd. Events that are ready are reported
// again. Errors: ENOENT, EBADF.
func (in *Instance) Modify(fd int, events uint32, data uint64) syscall.Errno {
	return sys.EpollCtl(in.FD(), ctlMod, fd, events, data)
}

// Remove stops watching fd. Errors: ENOENT, EBADF.
func (in *Instance) Remove(fd int) syscall.Errno {
	return sys.EpollCtl(in.FD(), ctlDel, fd, 0, 0)
}

// Wait waits for an event, fills events and returns their number. A negative timeout
// means no limit; with 0 Wait does not wait. A timeout is not an error. After EINTR the
// caller decides whether to wait again.
func (in *Instance) Wait(events []Event, timeout time.Duration) (int, syscall.Errno) {
	n, errno := in.wait(events, timeout)
	return max(n, 0), errno
}

// PollSockets is Wait with a timeout of 0 and without entering the scheduler. All
// descriptors of the instance must be sockets; see [sys.EpollPollSockets].
func (in *Instance) PollSockets(events []Event) (int, syscall.Errno) {
	n, errno := sys.EpollPollSockets(in.FD(), events)
	return max(n, 0), errno
}

// wait uses epoll_pwait2 for timeouts finer than milliseconds, where the kernel has it.
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
		in.coarse.Store(true) // Linux before 5.11, or a seccomp filter from that time
	}
	return sys.EpollWait(in.FD(), events, millis(timeout))
}

// millis rounds a timeout up, so that a short one does not become a spin.
func millis(d time.Duration) int {
	const most = (1<<31 - 1) * time.Millisecond
	return int((min(d, most) + time.Millisecond - 1) / time.Millisecond)
}
