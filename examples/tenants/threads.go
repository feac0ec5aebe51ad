// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"runtime/pprof"
	"strconv"
)

// threads returns how many threads this process has, including those of the kernel
// for io_uring. On systems other than Linux it returns how many Go has started; Go
// hardly ever ends one.
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
