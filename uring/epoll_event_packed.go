// SPDX-License-Identifier: MIT

//go:build amd64 || 386

package uring

// EpollEvent is struct epoll_event, which x86 packs.
type EpollEvent struct {
	Events uint32
	data   [8]byte
}
