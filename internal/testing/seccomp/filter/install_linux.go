// SPDX-License-Identifier: MIT

package filter

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Install makes io_uring_setup, io_uring_enter and io_uring_register fail with
// errno in all threads of the process and in all its future children, until
// they end. Other system calls are not touched. It also sets no_new_privs, so
// that it works for any user; set-user-ID programs lose their effect.
//
// The error is errors.ErrUnsupported on architectures other than amd64 and
// arm64, an *os.SyscallError if the kernel refuses, as it does without
// CONFIG_SECCOMP_FILTER. Safe for concurrent use; of several filters the one
// installed last answers, unless an earlier one is stricter. Since Linux 3.17.
func Install(errno syscall.Errno) error { return Forbid(errno, firstCall, lastCall) }

// Forbid is [Install] for the system calls with the numbers from first to last.
func Forbid(errno syscall.Errno, first, last uint32) error {
	// 4095 is the largest error number the kernel hands out.
	if errno == 0 || errno > 4095 {
		return fmt.Errorf("filter: error number %d is not in 1 to 4095", uintptr(errno))
	}
	prog := program(runtime.GOARCH, errno, first, last)
	if prog == nil {
		return fmt.Errorf("filter: %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	// The two calls must come from one thread; the second then carries both
	// settings over to the others.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	stray, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if e != 0 {
		return os.NewSyscallError("seccomp", e)
	}
	if stray != 0 {
		return fmt.Errorf("filter: thread %d has a seccomp filter of its own", stray)
	}
	return nil
}
