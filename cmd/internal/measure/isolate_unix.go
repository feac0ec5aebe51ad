// SPDX-License-Identifier: MIT

//go:build unix

package measure

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Isolate puts the command into a process group of its own, so that Ctrl-C on the terminal
// reaches this process alone, and makes the end of its context kill the whole group. It is
// called before the command starts.
func Isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = killGrace
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}
