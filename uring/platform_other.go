// SPDX-License-Identifier: MIT

//go:build !linux

package uring

import "syscall"

// No ring opens here.

func threadID() int { return 0 }

const errBadState = syscall.EINVAL
