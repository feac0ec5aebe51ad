// SPDX-License-Identifier: MIT

package sys

import "syscall"

// wrappedErrno hides the errno from ==, so that callers must use errors.Is,
// and names the call that failed.
type wrappedErrno struct {
	call string
	syscall.Errno
}

func (e wrappedErrno) Error() string { return e.call + ": " + e.Errno.Error() }

// Unwrap returns the errno; errors.Is against syscall.EPERM,
// errors.ErrUnsupported and fs.ErrPermission work through it.
func (e wrappedErrno) Unwrap() error { return e.Errno }

// Error returns an error for errno that names the call, nil for 0.
func Error(call string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return wrappedErrno{call, errno}
}
