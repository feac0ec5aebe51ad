// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// ignoreFileSizeSignal makes a write beyond the file size limit (ulimit -f) fail with an error
// instead of ending the process.
func ignoreFileSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
