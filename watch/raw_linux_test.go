// SPDX-License-Identifier: MIT

package watch

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func rawWrite(fd int, p *[8]byte) {
	if _, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(p)), 8); errno != 0 {
		panic(errno)
	}
}

func rawRead(fd int, p *[8]byte) {
	if _, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(p)), 8); errno != 0 {
		panic(errno)
	}
}
