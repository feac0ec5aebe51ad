// SPDX-License-Identifier: MIT

package sys

import "golang.org/x/sys/unix"

// KernelRelease returns the release of the running kernel as uname -r prints
// it, "" when unknown.
func KernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
