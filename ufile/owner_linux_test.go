// SPDX-License-Identifier: MIT

package ufile_test

import (
	"os"
	"sync"
	"syscall"
)

// owner is whom the process may give its own files to: itself. Where its user
// namespace has no number for that, -1, which changes nothing.
var owner = sync.OnceValues(func() (uid, gid int) {
	f, err := os.CreateTemp("", "owner")
	if err != nil {
		return -1, -1
	}
	defer os.Remove(f.Name())
	defer f.Close()
	uid, gid = os.Getuid(), os.Getgid()
	if err := syscall.Fchown(int(f.Fd()), uid, gid); err == syscall.EINVAL {
		return -1, -1
	}
	return uid, gid
})
