// SPDX-License-Identifier: MIT

//go:build unix

package workload

import (
	"errors"
	"syscall"
)

// isInvalid reports whether the kernel found an argument (here: the flag) invalid.
func isInvalid(err error) bool { return errors.Is(err, syscall.EINVAL) }
