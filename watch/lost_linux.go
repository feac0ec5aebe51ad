// SPDX-License-Identifier: MIT

package watch

import "syscall"

// errLost is what a ring answers when it has lost completions.
const errLost = syscall.EBADR
