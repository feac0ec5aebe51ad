// SPDX-License-Identifier: MIT

//go:build unix

package procstat

import "syscall"

// Descriptors returns the limit of descriptors per process, to which Go has raised the soft limit.
// 0 means that it is unknown.
func Descriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return int(min(l.Max, 1<<30))
}
