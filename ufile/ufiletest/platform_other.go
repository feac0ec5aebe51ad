// SPDX-License-Identifier: MIT

//go:build !linux

package ufiletest

import "testing"

// platform returns one test that names the tests that are left out.
func platform() []test {
	return []test{{"Linux", func(t *testing.T, _ suite) {
		t.Skip("needs Linux: named pipes, devices, /proc, O_DIRECT, RLIMIT_FSIZE")
	}}}
}
