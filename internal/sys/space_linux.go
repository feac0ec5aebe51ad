// SPDX-License-Identifier: MIT

package sys

import "golang.org/x/sys/unix"

// Fallocate is fallocate(2). The error is a bare errno, as os wants it in its
// errors.
func Fallocate(fd int, mode uint32, off, n int64) error {
	return retry(func() error { return unix.Fallocate(fd, mode, off, n) })
}

// Fadvise is posix_fadvise(2), with a bare errno as its error.
func Fadvise(fd int, off, n int64, advice int) error {
	return retry(func() error { return unix.Fadvise(fd, off, n, advice) })
}
