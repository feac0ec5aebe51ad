// SPDX-License-Identifier: MIT

package uring

import "syscall"

// threadID returns the id of the calling thread.
func threadID() int { return syscall.Gettid() }

// errBadState is what the kernel answers for a ring that is disabled.
const errBadState = syscall.EBADFD
