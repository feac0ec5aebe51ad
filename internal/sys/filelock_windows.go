// SPDX-License-Identifier: MIT

package sys

import (
	"os"

	"golang.org/x/sys/windows"
)

// TryLock locks a file against other openings of it, in this process and in
// others, until it is closed (LockFileEx). It reports false when somebody else
// holds the lock.
func TryLock(f *os.File) (bool, error) {
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, new(windows.Overlapped))
	if err == windows.ERROR_LOCK_VIOLATION {
		return false, nil
	}
	return err == nil, err
}
