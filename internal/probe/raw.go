// SPDX-License-Identifier: MIT

package probe

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// EnterErrno calls io_uring_enter(2) with the flags on a descriptor that does
// not exist. EBADF means that the kernel was reached and knows the flags,
// EINVAL that it does not know them; anything else comes from a filter, or
// from a kernel without io_uring.
func EnterErrno(flags uint32) syscall.Errno {
	_, errno := sys.EnterRaw(-1, 0, uintptr(flags))
	return errno
}

// RegisterErrno calls io_uring_register(2) without an argument. On a ring whose
// restrictions allow nothing, EACCES means that the kernel knows the operation,
// EINVAL that it does not.
func RegisterErrno(fd int, op uint32) syscall.Errno {
	_, errno := sys.Register(fd, op, nil, 0)
	return errno
}
