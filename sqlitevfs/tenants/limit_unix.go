// SPDX-License-Identifier: MIT

//go:build unix

package tenants

import (
	"math"

	"golang.org/x/sys/unix"
)

// limitOfDescriptors returns how many files the process may have open.
func limitOfDescriptors() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 1024
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
