// SPDX-License-Identifier: MIT

//go:build !linux

package ringtest

import "testing"

// NeedUser skips the test: tests become another user on Linux only.
func NeedUser(t testing.TB, id int) {
	t.Helper()
	t.Skipf("needs to become user %d, as on Linux", id)
}
