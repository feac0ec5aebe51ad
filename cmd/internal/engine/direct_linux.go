// SPDX-License-Identifier: MIT

package engine

import (
	"os"
	"syscall"
)

// readFlags returns the flags that open a file for reading, past the page cache if direct is set.
func readFlags(_ string, direct bool) (int, error) {
	if direct {
		return os.O_RDONLY | syscall.O_DIRECT, nil
	}
	return os.O_RDONLY, nil
}
