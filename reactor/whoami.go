// SPDX-License-Identifier: MIT

package reactor

import (
	"runtime"
	"strings"
)

// goroutineID returns the runtime's name of the calling goroutine. It is slow and serves
// to detect misuse only.
func goroutineID() string {
	var buf [64]byte
	head, _, _ := strings.Cut(string(buf[:runtime.Stack(buf[:], false)]), "[")
	return head
}
