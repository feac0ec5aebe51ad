// SPDX-License-Identifier: MIT

package unet

import (
	"os"

	"github.com/ringside-io/ringside/internal/sys"
)

func reusePort(fd int) error { return os.NewSyscallError("setsockopt", sys.SockReusePort(fd)) }
