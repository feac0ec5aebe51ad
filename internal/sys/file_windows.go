// SPDX-License-Identifier: MIT

package sys

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// TryLock locks a file against other openings of it, in this process and in others,
// until it is closed or [Unlock] (LockFileEx). It reports false when another opening
// holds the lock. It locks a range beyond the end of every file, because on Windows
// locked bytes cannot be read.
func TryLock(f *os.File) (bool, error) {
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, behindAll())
	if err == windows.ERROR_LOCK_VIOLATION {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock of [TryLock].
func Unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, behindAll())
}

func behindAll() *windows.Overlapped {
	return &windows.Overlapped{Offset: 1<<32 - 2, OffsetHigh: 1<<31 - 1}
}

func closeFD(int) error { return Error("close", noSys) }

// CloseOnExec does nothing: processes do not inherit descriptors by number.
func CloseOnExec(int) {}

// FileMode returns ENOSYS.
func FileMode(int) (mode uint32, id uint64, errno syscall.Errno) { return 0, 0, noSys }

// Pread returns ENOSYS.
func Pread(int, []byte, int64) (int, error) { return 0, noSys }

// Pwrite returns ENOSYS.
func Pwrite(int, []byte, int64) (int, error) { return 0, noSys }

// Flock returns ENOSYS.
func Flock(int, int, bool) error { return noSys }

// MapFile returns ENOSYS.
func MapFile(int, int) ([]byte, error) { return nil, noSys }

// UnmapFile returns ENOSYS.
func UnmapFile([]byte) error { return noSys }

// OpenRead returns ENOSYS.
func OpenRead(string) (int, error) { return -1, noSys }

// CloseFile returns ENOSYS.
func CloseFile(int) error { return noSys }

// FileSize returns 0.
func FileSize(int) int64 { return 0 }
