// SPDX-License-Identifier: MIT

//go:build !linux

package sys

import "syscall"

// PreadNoWait answers ENOSYS.
func PreadNoWait(int, []byte, int64) (int, syscall.Errno) { return 0, noSys }

// OpenFlags answers ENOSYS.
func OpenFlags(int) (int, error) { return 0, Error("fcntl", noSys) }

// Flags of open(2) that no descriptor has here.
const (
	ODirect = 0
	OAppend = 0
)
