// SPDX-License-Identifier: MIT

// Package accept decides whether a server goes on after an error of Accept.
package accept

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// pause is the time in which connections may end.
const pause = 10 * time.Millisecond

// Retry reports whether to call Accept again after err: the process or the system had no
// descriptor or no memory left, as when many clients connect. It first waits a short time, or
// until ctx ends. A server that ended instead could be ended by any client.
func Retry(ctx context.Context, err error) bool {
	for _, full := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, full) {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			return true
		}
	}
	return false
}
