// SPDX-License-Identifier: MIT

//go:build linux || darwin

package datafile

import (
	"errors"
	"syscall"
)

// freeSpace returns the number of bytes that an unprivileged process may still write.
func freeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	for {
		err := syscall.Statfs(dir, &st)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return int64(st.Bavail) * int64(st.Bsize), nil
	}
}

// isNoSpace reports whether a write failed because the device, a quota or a process limit is
// exhausted.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
