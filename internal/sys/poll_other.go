// SPDX-License-Identifier: MIT

//go:build !linux

package sys

import "syscall"

// PollFD stands for struct pollfd.
type PollFD struct {
	Fd              int32
	Events, Revents int16
}

// PollNow answers ENOSYS.
func PollNow([]PollFD) (int, syscall.Errno) { return 0, noSys }
