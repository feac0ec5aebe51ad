// SPDX-License-Identifier: MIT

//go:build unix

package workload

import (
	"errors"
	"syscall"
)

// isInvalid reports whether the kernel rejected an argument (here the flag).
func isInvalid(err error) bool { return errors.Is(err, syscall.EINVAL) }
