// SPDX-License-Identifier: MIT

//go:build !amd64 && !386

package uring

// EpollEvent is struct epoll_event.
type EpollEvent struct {
	Events uint32
	_      uint32
	data   [8]byte
}
