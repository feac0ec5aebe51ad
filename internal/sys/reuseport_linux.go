// SPDX-License-Identifier: MIT

package sys

import "golang.org/x/sys/unix"

// SetReusePort lets several sockets of the same user listen on one address, and
// spreads the connections over them (SO_REUSEPORT). The error is a bare errno.
func SetReusePort(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}
