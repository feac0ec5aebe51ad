// SPDX-License-Identifier: MIT

//go:build !linux

package sys

import "syscall"

// faulty is not called: no build of another system is [Faulty].
func faulty(_ string, n int) (int, syscall.Errno) { return n, 0 }

// closing is not called either.
func closing(int) {}
