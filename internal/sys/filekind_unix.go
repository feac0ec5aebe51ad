// SPDX-License-Identifier: MIT

//go:build unix

package sys

import "syscall"

// FileMode returns the st_mode of an open descriptor (fstat(2)): its type and
// permissions. Anonymous inodes have no type.
func FileMode(fd int) (uint32, syscall.Errno) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return 0, err.(syscall.Errno)
	}
	return uint32(st.Mode), 0
}
