// SPDX-License-Identifier: MIT

package kernelsim

import "syscall"

// Files is the Host that moves the bytes of real files.
type Files struct{}

func (Files) Read(fd int, p []byte, off int64) int32 { return answer(syscall.Pread(fd, p, off)) }

func (Files) Write(fd int, p []byte, off int64) int32 { return answer(syscall.Pwrite(fd, p, off)) }

func (Files) Sync(fd int) int32 { return answer(0, syscall.Fdatasync(fd)) }

func (Files) Hold(fd int) int32 {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 1) // 0 stands for none
	if errno != 0 {
		return -int32(errno)
	}
	return int32(n)
}

func (Files) Drop(fd int) { _ = syscall.Close(fd) }

// answer is the result of a completion.
func answer(n int, err error) int32 {
	if errno, ok := err.(syscall.Errno); ok {
		return -int32(errno)
	}
	return int32(n)
}
