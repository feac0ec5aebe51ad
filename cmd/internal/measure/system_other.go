// SPDX-License-Identifier: MIT

//go:build !unix

package measure

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// usage is empty on systems without getrusage.
type usage struct{}

func readUsage() usage { return usage{} }

func (usage) since(usage, *Sample) {}

// CPUTime is not known here.
func CPUTime() (time.Duration, bool) { return 0, false }

// Isolate limits how long the output of a killed command is awaited. There are no process groups
// here.
func Isolate(cmd *exec.Cmd) { cmd.WaitDelay = killGrace }

// Group returns what signals the command: there are no process groups here.
func Group(cmd *exec.Cmd) func(syscall.Signal) error {
	return func(sig syscall.Signal) error { return cmd.Process.Signal(sig) }
}

// WorkerInput returns the standard input for [ServeWorker].
func WorkerInput() io.Reader { return os.Stdin }
