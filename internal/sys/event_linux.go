// SPDX-License-Identifier: MIT

package sys

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Descriptors that become readable when something happens. All have close-on-exec set
// and do not block.

// Counter opens an eventfd(2) that does not block its readers.
func Counter() (*FD, error) {
	return opened("eventfd")(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK))
}

// TimerFD opens a timerfd(2) that fires once, after d.
func TimerFD(d time.Duration) (*FD, error) {
	fd, err := opened("timerfd_create")(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK))
	if err != nil {
		return nil, err
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(d), 1))}
	if err := unix.TimerfdSettime(fd.Int(), 0, &spec, nil); err != nil {
		_ = fd.Close()
		return nil, Error("timerfd_settime", err.(syscall.Errno))
	}
	return fd, nil
}

// SignalFD opens a signalfd(2) for one signal, which must be blocked where it
// arrives.
func SignalFD(sig syscall.Signal) (*FD, error) {
	set := sigset(sig)
	return opened("signalfd")(unix.Signalfd(-1, &set, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK))
}

// MaskSignal blocks or unblocks a signal for the calling thread. Lock the goroutine to
// the thread in between.
func MaskSignal(sig syscall.Signal, block bool) error {
	how := unix.SIG_UNBLOCK
	if block {
		how = unix.SIG_BLOCK
	}
	set := sigset(sig)
	if err := unix.PthreadSigmask(how, &set, nil); err != nil {
		return Error("rt_sigprocmask", err.(syscall.Errno))
	}
	return nil
}

// ThreadID returns the id of the calling thread.
func ThreadID() int { return unix.Gettid() }

// ThreadExited reports whether a thread that this process had has exited, and whether
// the result is sure. It is not sure for a thread that is about to exit and has closed
// its files: the thread still exists, in the call that exits or shortly before it.
func ThreadExited(tid int) (exited, sure bool) {
	if unix.Tgkill(os.Getpid(), tid, 0) == unix.ESRCH {
		return true, true
	}
	call, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid))
	if err != nil {
		return false, false
	}
	// "running", or the number of the call in which the thread is blocked.
	number, _, _ := strings.Cut(string(call), " ")
	n, err := strconv.Atoi(number)
	return false, err == nil && n >= 0 && n != unix.SYS_EXIT && n != unix.SYS_EXIT_GROUP
}

// SignalThread sends a signal to a thread of this process.
func SignalThread(tid int, sig syscall.Signal) error {
	if err := unix.Tgkill(os.Getpid(), tid, sig); err != nil {
		return Error("tgkill", err.(syscall.Errno))
	}
	return nil
}

// PidFD opens a pidfd(2), which is readable once the process has exited.
// (Linux 5.3)
func PidFD(pid int) (*FD, error) { return opened("pidfd_open")(unix.PidfdOpen(pid, 0)) }

// Terminal opens a pseudo-terminal: its master and its slave side. The slave passes on
// input without waiting for a line.
func Terminal() (master, slave *FD, err error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_NONBLOCK
	master, err = opened("open /dev/ptmx")(unix.Open("/dev/ptmx", flags, 0))
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(master.Int(), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, Error("ioctl TIOCSPTLCK", err.(syscall.Errno))
	}
	fd, _, errno := syscall.Syscall(unix.SYS_IOCTL, uintptr(master.Int()), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return nil, nil, Error("ioctl TIOCGPTPEER", errno)
	}
	slave = NewFD(int(fd))
	attr, err := unix.IoctlGetTermios(slave.Int(), unix.TCGETS)
	if err == nil {
		attr.Lflag &^= unix.ICANON | unix.ECHO
		err = unix.IoctlSetTermios(slave.Int(), unix.TCSETS, attr)
	}
	if err != nil {
		_ = slave.Close()
		return nil, nil, Error("ioctl termios", err.(syscall.Errno))
	}
	return master, slave, nil
}

func sigset(sig syscall.Signal) unix.Sigset_t {
	var set unix.Sigset_t
	const word = 8 * unsafe.Sizeof(set.Val[0])
	n := uintptr(sig - 1)
	set.Val[n/word] |= 1 << (n % word)
	return set
}

// opened returns a function that converts the results of a call that opens a descriptor.
func opened(call string) func(int, error) (*FD, error) {
	return func(fd int, err error) (*FD, error) {
		if err != nil {
			return nil, Error(call, err.(syscall.Errno))
		}
		return NewFD(fd), nil
	}
}

// EventFD opens an eventfd(2) that starts at 0 and blocks readers until
// [Signal].
func EventFD() (*FD, error) {
	if _, errno := fault("eventfd", 1); errno != 0 {
		return nil, Error("eventfd", errno)
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, Error("eventfd", err.(syscall.Errno))
	}
	return NewFD(fd), nil
}

// Signal adds one to an eventfd, which ends a read of it. It does not block
// before 2^64-2 signals without a read.
func Signal(fd *FD) {
	one := uint64(1) // in the byte order of the machine, as the kernel reads it
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd.Int()), uintptr(unsafe.Pointer(&one)), 8)
}
