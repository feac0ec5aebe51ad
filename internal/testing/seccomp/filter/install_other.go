// SPDX-License-Identifier: MIT

//go:build !linux

package filter

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

// Install fails with errors.ErrUnsupported: only Linux has io_uring.
func Install(errno syscall.Errno) error {
	return fmt.Errorf("filter: %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Forbid fails with errors.ErrUnsupported, as Install.
func Forbid(errno syscall.Errno, _, _ uint32) error { return Install(errno) }
