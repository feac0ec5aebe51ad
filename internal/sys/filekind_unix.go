// SPDX-License-Identifier: MIT

//go:build unix

package sys

import "syscall"

// FileMode returns the st_mode of an open descriptor (fstat(2)), which holds its
// type and permissions, and a number made of its device and inode. Anonymous
// inodes have no type, and all of them have the same number.
func FileMode(fd int) (mode uint32, id uint64, errno syscall.Errno) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return 0, 0, err.(syscall.Errno)
	}
	return uint32(st.Mode), uint64(st.Ino) ^ uint64(st.Dev)<<40, 0
}
