// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// descriptors returns how many a process may have: Go raises its limit as far as it may. 0 means
// that it is unknown.
func descriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return int(min(l.Max, 1<<30))
}

// ignoreFileSizeSignal lets a write beyond the file size limit (ulimit -f) fail with an error that
// can be explained, instead of ending the process.
func ignoreFileSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
