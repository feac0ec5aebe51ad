// SPDX-License-Identifier: MIT

package sys

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Tickless reports whether some processors have no clock ticks while they run a single
// thread (the boot option nohz_full), so that a thread may compute forever without
// entering the kernel.
var Tickless = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/sys/devices/system/cpu/nohz_full")
	return err == nil && isCPUList(string(b))
})

// isCPUList reports whether s is a list of processors. Kernels print other text for none.
func isCPUList(s string) bool { return strings.ContainsAny(s, "0123456789") }

// KernelRelease returns the release of the running kernel as uname -r prints
// it, "" when unknown.
func KernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
