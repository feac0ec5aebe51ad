// SPDX-License-Identifier: MIT

//go:build !linux

package ufile_test

import "testing"

// forgetCached does nothing.
func forgetCached(testing.TB, string) {}
