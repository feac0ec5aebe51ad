// SPDX-License-Identifier: MIT

package sys

import "golang.org/x/sys/unix"

// StatxBuf is struct statx.
type StatxBuf = unix.Statx_t

// Statx is statx(2). The error is a bare errno, as os wants it in its errors.
// (Linux 4.11)
func Statx(dir int, name string, flags int, mask uint32, st *StatxBuf) error {
	return retry(func() error { return unix.Statx(dir, name, flags, int(mask), st) })
}

// Major returns one part of a device number.
func Major(dev uint64) uint32 { return unix.Major(dev) }

// Minor returns the other part of a device number.
func Minor(dev uint64) uint32 { return unix.Minor(dev) }
