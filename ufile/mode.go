// SPDX-License-Identifier: MIT

package ufile

import "fmt"

// Mode says how a [System] reads and writes.
type Mode int

const (
	// ModeAuto chooses for each operation, and plain system calls where
	// io_uring cannot be used.
	ModeAuto Mode = iota
	// ModeRing sends every positional read and write of regular files and
	// block devices through a ring: to its worker threads where the kernel cannot
	// read the file without blocking. Regular files that can be polled, such as
	// those of FUSE, are left to plain system calls: a ring returns wrong counts
	// for them at the end of the file (Linux 6.18).
	ModeRing
	// ModeSyscall uses plain system calls only.
	ModeSyscall
)

// String returns auto, ring or syscall.
func (m Mode) String() string {
	switch m {
	case ModeAuto:
		return "auto"
	case ModeRing:
		return "ring"
	case ModeSyscall:
		return "syscall"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}
