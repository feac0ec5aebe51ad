// SPDX-License-Identifier: MIT

package ufile

import "github.com/ringside-io/ringside/internal/sys"

func fallocate(fd int, mode FallocateMode, off, n int64) error {
	return sys.Fallocate(fd, uint32(mode), off, n)
}

func fadvise(fd int, off, n int64, a Advice) error { return sys.Fadvise(fd, off, n, int(a)) }
