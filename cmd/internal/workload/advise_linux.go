// SPDX-License-Identifier: MIT

package workload

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/cmd/internal/engine"
)

// adviseRandom disables read-ahead for the file. The amount of read-ahead depends on what other
// goroutines read through the same descriptor, and would decide the result.
func adviseRandom(f engine.File) error {
	d, ok := f.(interface{ Fd() uintptr })
	if !ok {
		return nil
	}
	return os.NewSyscallError("fadvise", unix.Fadvise(int(d.Fd()), 0, 0, unix.FADV_RANDOM))
}
