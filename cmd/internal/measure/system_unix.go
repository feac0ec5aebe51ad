// SPDX-License-Identifier: MIT

//go:build unix

package measure

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// inblockSize is the unit in which the kernel counts block input.
const inblockSize = 512

// usage is the CPU time and block input of the process at one moment.
type usage struct {
	cpu    time.Duration
	blocks int64
	known  bool
}

func readUsage() usage {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return usage{}
	}
	return usage{
		cpu:    time.Duration(ru.Utime.Nano() + ru.Stime.Nano()),
		blocks: int64(ru.Inblock),
		known:  true,
	}
}

// since stores the difference to an earlier reading.
func (u usage) since(before usage, s *Sample) {
	if !u.known || !before.known {
		return
	}
	cpu := u.cpu - before.cpu
	s.CPU = &cpu
	s.DeviceReads = (u.blocks - before.blocks) * inblockSize
}

// CPUTime returns the user and system time of this process so far, and false if it is unknown.
func CPUTime() (time.Duration, bool) {
	u := readUsage()
	return u.cpu, u.known
}

// Isolate puts the command into a process group of its own, so that Ctrl-C on the terminal reaches
// only this process. The end of the command's context kills the whole group. It must be called
// before the command starts.
func Isolate(cmd *exec.Cmd) {
	signal := Group(cmd)
	cmd.WaitDelay = killGrace
	cmd.Cancel = func() error { return signal(syscall.SIGKILL) }
}

// Group puts the command into a process group of its own, and returns what signals the whole group.
// It must be called before the command starts.
func Group(cmd *exec.Cmd) func(syscall.Signal) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func(sig syscall.Signal) error {
		err := syscall.Kill(-cmd.Process.Pid, sig)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}

// WorkerInput returns the standard input for [ServeWorker]. Workers get a pipe. Waiting for its end
// must not use a thread, because threads are counted. So the wait happens in the netpoller.
func WorkerInput() io.Reader {
	fd := int(os.Stdin.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		return os.Stdin
	}
	return os.NewFile(uintptr(fd), "stdin")
}
