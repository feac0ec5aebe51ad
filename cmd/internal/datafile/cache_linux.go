// SPDX-License-Identifier: MIT

package datafile

import (
	"os"

	"golang.org/x/sys/unix"
)

// dropCache asks the kernel to forget the clean cached pages of the file. It changes no content;
// a file system that ignores the advice only keeps pages that O_DIRECT does not use anyway.
func dropCache(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
