// SPDX-License-Identifier: MIT

//go:build unix

package measure

import (
	"io"
	"os"
	"syscall"
)

// WorkerInput returns the standard input for [ServeWorker]. It is a pipe there, and waiting for
// its end must not cost a thread, since threads are counted: so the wait happens in the poller.
func WorkerInput() io.Reader {
	fd := int(os.Stdin.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		return os.Stdin
	}
	return os.NewFile(uintptr(fd), "stdin")
}
