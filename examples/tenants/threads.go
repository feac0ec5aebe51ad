// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"runtime/pprof"
	"strconv"
)

// threads returns how many threads this process has, those that the kernel made
// for io_uring included. Elsewhere than on Linux it is how many Go has started,
// of which it hardly ever ends one.
func threads() int {
	status, _ := os.ReadFile("/proc/self/status")
	if _, rest, ok := bytes.Cut(status, []byte("\nThreads:")); ok {
		number, _, _ := bytes.Cut(rest, []byte("\n"))
		if n, err := strconv.Atoi(string(bytes.TrimSpace(number))); err == nil {
			return n
		}
	}
	return pprof.Lookup("threadcreate").Count()
}
