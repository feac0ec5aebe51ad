// SPDX-License-Identifier: MIT

package sys

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/abi"
)

// EpollEvent is struct epoll_event.
type EpollEvent = unix.EpollEvent

// EpollPad is how many bytes lie between the mask and the user data of an EpollEvent.
const EpollPad = unsafe.Offsetof(EpollEvent{}.Fd) - unsafe.Sizeof(EpollEvent{}.Events)

// NewEpollEvent returns an event mask with user data.
func NewEpollEvent(events uint32, data uint64) EpollEvent {
	return EpollEvent{Events: events, Fd: int32(uint32(data)), Pad: int32(uint32(data >> 32))}
}

// EpollData returns the user data of an event.
func EpollData(ev *EpollEvent) uint64 {
	return uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
}

// EpollCreate opens an epoll instance, with close-on-exec set.
func EpollCreate() (*FD, error) {
	if _, errno := fault("epoll_create1", 1); errno != 0 {
		return nil, Error("epoll_create1", errno)
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, Error("epoll_create1", err.(syscall.Errno))
	}
	return NewFD(fd), nil
}

// EpollCtl is epoll_ctl(2). The kernel asks the file for its state, and a FUSE server
// may be slow to reply, so EpollCtl enters the scheduler.
func EpollCtl(ep, op, fd int, events uint32, data uint64) syscall.Errno {
	if _, errno := fault("epoll_ctl", op); errno != 0 {
		return errno
	}
	ev := NewEpollEvent(events, data)
	_, _, errno := syscall.Syscall6(unix.SYS_EPOLL_CTL, uintptr(ep), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	return errno
}

// EpollPollSockets is epoll_pwait(2) that does not wait and does not enter the
// scheduler. The kernel asks each file that may be ready for its state. Use it only
// where all files are sockets or epoll instances that hold only sockets. For other
// files, such as a file of a FUSE server, the kernel may wait for a reply: use
// [EpollWait] with a timeout of 0.
func EpollPollSockets(ep int, events []EpollEvent) (int, syscall.Errno) {
	events, errno := faultSlice("epoll_wait", events)
	if errno != 0 {
		return -1, errno
	}
	wakeMonitor()
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep),
		uintptr(SlicePointer(events)), uintptr(len(events)), 0, 0, 0)
	return int(n), errno
}

// EpollWait is epoll_pwait(2) with a timeout in milliseconds, -1 for none.
func EpollWait(ep int, events []EpollEvent, millis int) (int, syscall.Errno) {
	events, errno := faultSlice("epoll_wait", events)
	if errno != 0 {
		return -1, errno
	}
	n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep),
		uintptr(SlicePointer(events)), uintptr(len(events)), uintptr(millis), 0, 0)
	return int(n), errno
}

// EpollWait2 is epoll_pwait2(2), whose timeout is in nanoseconds. (Linux 5.11)
func EpollWait2(ep int, events []EpollEvent, timeout time.Duration) (int, syscall.Errno) {
	events, errno := faultSlice("epoll_wait", events)
	if errno != 0 {
		return -1, errno
	}
	ts := abi.Timespec{Sec: int64(timeout / time.Second), Nsec: int64(timeout % time.Second)}
	n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(ep),
		uintptr(SlicePointer(events)), uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	return int(n), errno
}

// PollFD is struct pollfd.
type PollFD = unix.PollFd

// PollNow asks for the state of descriptors, as poll(2) without waiting, and returns
// how many have a bit set in Revents. It enters the scheduler, because a FUSE server
// may be slow to reply for its files.
func PollNow(fds []PollFD) (int, syscall.Errno) {
	if _, errno := fault("poll", len(fds)); errno != 0 {
		return -1, errno
	}
	var now abi.Timespec // as large as the kernel's on every architecture
	n, _, errno := syscall.Syscall6(unix.SYS_PPOLL, uintptr(SlicePointer(fds)),
		uintptr(len(fds)), uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return int(n), errno
}
