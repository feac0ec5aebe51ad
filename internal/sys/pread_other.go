// SPDX-License-Identifier: MIT

//go:build !unix

package sys

// Pread answers ENOSYS.
func Pread(int, []byte, int64) (int, error) { return 0, noSys }

// Pwrite answers ENOSYS.
func Pwrite(int, []byte, int64) (int, error) { return 0, noSys }
