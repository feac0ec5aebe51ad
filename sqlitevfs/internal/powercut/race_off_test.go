// SPDX-License-Identifier: MIT

//go:build !race

package powercut_test

const slow = false
