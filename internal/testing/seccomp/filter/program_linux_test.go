// SPDX-License-Identifier: MIT

package filter

import (
	"fmt"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// evaluate interprets the instructions of the filter.
func evaluate(t *testing.T, prog []unix.SockFilter, nr, arch uint32) uint32 {
	t.Helper()
	var acc uint32
	branch := func(in unix.SockFilter, yes bool) int {
		if yes {
			return int(in.Jt)
		}
		return int(in.Jf)
	}
	for pc := 0; pc < len(prog); pc++ {
		switch in := prog[pc]; in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = map[uint32]uint32{offsetNr: nr, offsetArch: arch}[in.K]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			pc += branch(in, acc == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			pc += branch(in, acc >= in.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			pc += branch(in, acc > in.K)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d: unknown code %#x", pc, in.Code)
		}
	}
	t.Fatal("the program runs off its end")
	return 0
}

func TestProgram(t *testing.T) {
	const (
		allow  = unix.SECCOMP_RET_ALLOW
		forbid = unix.SECCOMP_RET_ERRNO | uint32(syscall.EPERM)
	)
	for _, tt := range []struct {
		goarch string
		arch   uint32
		nr     uint32
		want   uint32
	}{
		{"amd64", unix.AUDIT_ARCH_X86_64, 424, allow},
		{"amd64", unix.AUDIT_ARCH_X86_64, 425, forbid},
		{"amd64", unix.AUDIT_ARCH_X86_64, 426, forbid},
		{"amd64", unix.AUDIT_ARCH_X86_64, 427, forbid},
		{"amd64", unix.AUDIT_ARCH_X86_64, 428, allow},
		{"amd64", unix.AUDIT_ARCH_X86_64, 0, allow},
		{"amd64", unix.AUDIT_ARCH_X86_64, ^uint32(0), allow},
		{"amd64", unix.AUDIT_ARCH_X86_64, x32Bit | 425, forbid},
		{"amd64", unix.AUDIT_ARCH_X86_64, x32Bit | 424, allow},
		{"amd64", unix.AUDIT_ARCH_I386, 425, forbid},
		{"amd64", unix.AUDIT_ARCH_I386, 4, allow},
		{"amd64", unix.AUDIT_ARCH_AARCH64, 425, allow},
		{"arm64", unix.AUDIT_ARCH_AARCH64, 425, forbid},
		{"arm64", unix.AUDIT_ARCH_AARCH64, 427, forbid},
		{"arm64", unix.AUDIT_ARCH_AARCH64, 428, allow},
		{"arm64", unix.AUDIT_ARCH_AARCH64, x32Bit | 425, allow},
		{"arm64", unix.AUDIT_ARCH_ARM, 425, forbid},
		{"arm64", unix.AUDIT_ARCH_X86_64, 425, allow},
	} {
		t.Run(fmt.Sprintf("%s/%x/%d", tt.goarch, tt.arch, tt.nr), func(t *testing.T) {
			prog := program(tt.goarch, syscall.EPERM, firstCall, lastCall)
			if got := evaluate(t, prog, tt.nr, tt.arch); got != tt.want {
				t.Errorf("got %#x, want %#x", got, tt.want)
			}
		})
	}
	if program("wasm", syscall.EPERM, firstCall, lastCall) != nil {
		t.Error("program accepted an unknown architecture")
	}
}

func TestNumbers(t *testing.T) {
	if unix.SYS_IO_URING_SETUP != firstCall || unix.SYS_IO_URING_ENTER != firstCall+1 || unix.SYS_IO_URING_REGISTER != lastCall {
		t.Error("the io_uring system calls have other numbers on this architecture")
	}
}
