// SPDX-License-Identifier: MIT

package workload

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/cmd/internal/engine"
)

// adviseRandom tells the kernel to read what is asked for and no more: how far it would read ahead
// depends on what other goroutines read through the same descriptor, and would decide the result.
func adviseRandom(f engine.File) error {
	d, ok := f.(interface{ Fd() uintptr })
	if !ok {
		return nil
	}
	return os.NewSyscallError("fadvise", unix.Fadvise(int(d.Fd()), 0, 0, unix.FADV_RANDOM))
}
