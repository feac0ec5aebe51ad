// SPDX-License-Identifier: MIT

package filter

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// The io_uring system calls have the same numbers on every architecture
// named here: setup 425, enter 426, register 427.
const (
	firstCall = 425
	lastCall  = 427
)

// Offsets in the struct seccomp_data a filter reads.
const (
	offsetNr   = 0
	offsetArch = 4
)

// x32Bit marks a system call of the x32 ABI, which amd64 kernels report as
// their own architecture.
const x32Bit = 0x40000000

// program returns the filter of the calls from first to last for a GOARCH, nil
// if it is unknown. A 64-bit
// kernel also takes system calls of its 32-bit architecture, which must not be
// a way around.
func program(goarch string, errno syscall.Errno, first, last uint32) []unix.SockFilter {
	var native, compat uint32
	mask := ^uint32(0)
	switch goarch {
	case "amd64":
		native, compat = unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386
		mask = ^uint32(x32Bit)
	case "arm64":
		native, compat = unix.AUDIT_ARCH_AARCH64, unix.AUDIT_ARCH_ARM
	default:
		return nil
	}
	// A jump skips as many instructions as it says.
	return []unix.SockFilter{
		0: load(offsetArch),
		1: jump(unix.BPF_JEQ, native, 2, 0),
		2: jump(unix.BPF_JEQ, compat, 1, 0),
		3: answer(unix.SECCOMP_RET_ALLOW), // numbers mean something else there
		4: load(offsetNr),
		5: {Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask},
		6: jump(unix.BPF_JGE, first, 0, 2),
		7: jump(unix.BPF_JGT, last, 1, 0),
		8: answer(unix.SECCOMP_RET_ERRNO | uint32(errno)),
		9: answer(unix.SECCOMP_RET_ALLOW),
	}
}

// load reads a 32-bit word of the seccomp_data.
func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jump(op uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func answer(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}
