// SPDX-License-Identifier: MIT

package reactor

import "syscall"

// threadID returns the number of the thread; 0 means that it is not known.
func threadID() int { return syscall.Gettid() }
