// SPDX-License-Identifier: MIT

//go:build !linux

package sys

// CopyFileRange answers ENOSYS.
func CopyFileRange(int, int64, int, int64, int) (int, error) { return 0, noSys }

// CloneRange answers ENOSYS.
func CloneRange(int, int64, int, int64, int64) error { return noSys }

// Splice answers ENOSYS.
func Splice(int, int64, int, int64, int, bool) (int, error) { return 0, noSys }

// Reopen answers ENOSYS.
func Reopen(int) (*FD, error) { return nil, noSys }

// PunchHole answers ENOSYS.
func PunchHole(int, int64, int64) error { return noSys }

// NextData answers ENOSYS.
func NextData(int, int64) (start, end int64, err error) { return 0, 0, noSys }
