// SPDX-License-Identifier: MIT

//go:build unix

package sys

import "syscall"

// closeFD does not retry on EINTR: Linux has released the number by then.
func closeFD(fd int) error {
	if err := syscall.Close(fd); err != nil && err != syscall.EINTR {
		return Error("close", err.(syscall.Errno))
	}
	return nil
}
