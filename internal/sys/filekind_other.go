// SPDX-License-Identifier: MIT

//go:build !unix

package sys

import "syscall"

// FileMode answers ENOSYS.
func FileMode(fd int) (uint32, syscall.Errno) { return 0, noSys }
