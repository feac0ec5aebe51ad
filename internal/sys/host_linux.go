// SPDX-License-Identifier: MIT

package sys

import (
	"os"
	"strings"
	"sync"
)

// Tickless reports whether some processors do without the clock's ticks while they
// run a single thread (the boot option nohz_full), so that a thread may compute
// for ever without passing through the kernel.
var Tickless = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/sys/devices/system/cpu/nohz_full")
	return err == nil && isCPUList(string(b))
})

// isCPUList tells a list of processors from what kernels print for none.
func isCPUList(s string) bool { return strings.ContainsAny(s, "0123456789") }
