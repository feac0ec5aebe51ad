// SPDX-License-Identifier: MIT

//go:build !linux

package sys

import "syscall"

// PreadNoWait answers ENOSYS.
func PreadNoWait(int, []byte, int64) (int, syscall.Errno) { return 0, noSys }

// ReadsNoWait answers ENOSYS.
func ReadsNoWait(int) (bool, syscall.Errno) { return false, noSys }

// FileSystem answers 0.
func FileSystem(int) int64 { return 0 }

// Types of file systems, which no descriptor has here.
const (
	FSExt4 = iota + 1
	FSXFS
	FSBtrfs
	FSF2FS
	FSFuse
)

// OpenFlags answers ENOSYS.
func OpenFlags(int) (int, error) { return 0, Error("fcntl", noSys) }

// Flags of open(2) that no descriptor has here.
const (
	ODirect   = 0
	OAppend   = 0
	ONonblock = 0
)
