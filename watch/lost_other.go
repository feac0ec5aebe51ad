// SPDX-License-Identifier: MIT

//go:build !linux

package watch

import "syscall"

// errLost stands for an answer of rings, which are not here.
const errLost = syscall.ENOSYS
