// SPDX-License-Identifier: MIT

//go:build !unix

package sys

import "syscall"

// FileMode answers ENOSYS.
func FileMode(fd int) (mode uint32, id uint64, errno syscall.Errno) { return 0, 0, noSys }
