// SPDX-License-Identifier: MIT

//go:build !linux

package sys

// HaveFdatasync reports whether [Fdatasync] works.
const HaveFdatasync = false

// Fdatasync answers ENOSYS.
func Fdatasync(int) error { return noSys }
