// SPDX-License-Identifier: MIT

//go:build unix

package fileserver

import (
	"os"
	"syscall"
)

// openFlags do not wait for the other end of a named pipe.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK
