// SPDX-License-Identifier: MIT

//go:build race

package powercut_test

// slow reports whether the race detector makes each state expensive.
const slow = true
