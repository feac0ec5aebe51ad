// SPDX-License-Identifier: MIT

package sys

import (
	"strconv"
	"sync/atomic"
	"syscall"
)

// FDTrace, when set before the first descriptor is opened, is called with each
// descriptor that this package opens and closes. Leak checks of tests use it.
var FDTrace func(fd int, open bool)

// FD owns a descriptor of the process. It may be used from several goroutines; Close
// takes effect once and does not wait: the owner must ensure that no goroutine uses the
// FD any more.
type FD struct {
	raw    int
	closed atomic.Bool
}

// NewFD takes ownership of a descriptor.
func NewFD(raw int) *FD {
	if FDTrace != nil {
		FDTrace(raw, true)
	}
	return &FD{raw: raw}
}

// Int returns the number of the descriptor.
func (fd *FD) Int() int { return fd.raw }

// String returns the number in decimal.
func (fd *FD) String() string { return strconv.Itoa(fd.raw) }

// Detach transfers the descriptor to the caller, which must close it.
func (fd *FD) Detach() int {
	if fd.closed.Swap(true) {
		return -1
	}
	if FDTrace != nil {
		FDTrace(fd.raw, false)
	}
	return fd.raw
}

// Close closes the descriptor. A second call returns EBADF.
func (fd *FD) Close() error {
	raw := fd.Detach()
	if raw < 0 {
		return Error("close", syscall.EBADF)
	}
	if Faulty {
		closing(raw)
	}
	return closeFD(raw)
}

// wrappedErrno hides the errno from ==, so that callers must use errors.Is,
// and names the call that failed.
type wrappedErrno struct {
	call string
	syscall.Errno
}

func (e wrappedErrno) Error() string { return e.call + ": " + e.Errno.Error() }

// Unwrap returns the errno; errors.Is uses it to match syscall.EPERM,
// errors.ErrUnsupported and fs.ErrPermission.
func (e wrappedErrno) Unwrap() error { return e.Errno }

// Error returns an error for errno that names the call, nil for 0.
func Error(call string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return wrappedErrno{call, errno}
}
