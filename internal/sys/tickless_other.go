// SPDX-License-Identifier: MIT

//go:build !linux

package sys

// Tickless says no.
func Tickless() bool { return false }
