// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// descriptors returns the limit of descriptors per process, to which Go has raised the soft limit.
// 0 means that it is unknown.
func descriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return int(min(l.Max, 1<<30))
}

// ignoreFileSizeSignal makes a write beyond the file size limit (ulimit -f) fail with an error
// instead of ending the process.
func ignoreFileSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
