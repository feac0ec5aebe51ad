// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/seccomp/filter"
)

func main() {
	opt, err := parseOptions(os.Args[1:], os.Stderr)
	if err != nil {
		os.Exit(2)
	}
	// Still here: the command was not started.
	fmt.Fprintln(os.Stderr, "seccomp:", run(opt))
	os.Exit(127)
}

// run applies the restrictions and turns the process into the command. It
// returns only if something fails.
func run(opt options) error {
	path, err := exec.LookPath(opt.command[0])
	if err != nil {
		return err
	}
	if err := limit(unix.RLIMIT_MEMLOCK, opt.memlock); err != nil {
		return fmt.Errorf("-memlock: %w", err)
	}
	if err := limit(unix.RLIMIT_NOFILE, opt.nofile); err != nil {
		return fmt.Errorf("-nofile: %w", err)
	}
	if opt.loopback {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("-loopback: %w", err)
		}
	}
	if opt.uid >= 0 {
		if err := become(opt.uid); err != nil {
			return fmt.Errorf("-uid: %w", err)
		}
	}
	if opt.errno != 0 {
		if err := filter.Install(opt.errno); err != nil {
			return err
		}
	}
	err = syscall.Exec(path, opt.command, os.Environ())
	return &os.PathError{Op: "exec", Path: path, Err: err}
}

// limit sets soft and hard limit; a negative value leaves them.
func limit(resource int, value int64) error {
	if value < 0 {
		return nil
	}
	// The standard library's function, because Go restores the descriptor
	// limit it found at its start when it executes a program, unless it saw
	// the limit being changed.
	both := syscall.Rlimit{Cur: uint64(value), Max: uint64(value)}
	return os.NewSyscallError("setrlimit", syscall.Setrlimit(resource, &both))
}

// become gives up root for a user and the group of the same number.
func become(id int) error {
	if err := syscall.Setgroups([]int{id}); err != nil {
		return os.NewSyscallError("setgroups", err)
	}
	if err := syscall.Setresgid(id, id, id); err != nil {
		return os.NewSyscallError("setresgid", err)
	}
	return os.NewSyscallError("setresuid", syscall.Setresuid(id, id, id))
}

// loopbackUp brings up the loopback interface of the network namespace.
func loopbackUp() error {
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("SIOCSIFFLAGS", unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo))
}
