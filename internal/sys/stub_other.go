// SPDX-License-Identifier: MIT

//go:build !linux

package sys

import (
	"syscall"
	"time"
)

// EpollEvent stands for struct epoll_event.
type EpollEvent struct {
	Events uint32
	data   uint64
}

// NewEpollEvent returns an event mask with user data.
func NewEpollEvent(events uint32, data uint64) EpollEvent { return EpollEvent{events, data} }

// EpollData returns the user data of an event.
func EpollData(ev *EpollEvent) uint64 { return ev.data }

// EpollCreate answers ENOSYS.
func EpollCreate() (*FD, error) { return nil, Error("epoll_create1", noSys) }

// EpollCtl answers ENOSYS.
func EpollCtl(ep, op, fd int, events uint32, data uint64) syscall.Errno { return noSys }

// EpollPollSockets answers ENOSYS.
func EpollPollSockets(ep int, events []EpollEvent) (int, syscall.Errno) { return 0, noSys }

// EpollWait answers ENOSYS.
func EpollWait(ep int, events []EpollEvent, millis int) (int, syscall.Errno) { return 0, noSys }

// EpollWait2 answers ENOSYS.
func EpollWait2(ep int, events []EpollEvent, timeout time.Duration) (int, syscall.Errno) {
	return 0, noSys
}
